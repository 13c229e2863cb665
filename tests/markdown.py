"""Python blocks of Markdown pages, run in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_blocks(page: Path) -> int:
    """Run all Python blocks of a page; how many there were."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": page.stem}
    blocks = list(_BLOCK.finditer(text))
    for block in blocks:
        # Leading newlines make tracebacks point at the line of the page itself.
        padding = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(padding + block[1], str(page), "exec"), namespace)
    return len(blocks)
