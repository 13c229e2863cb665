"""Every Python block of README.md runs, in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_python_blocks_run_in_order(tmp_path: Path, monkeypatch) -> None:
    # Blocks may write files; none of them belongs in the checkout.
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    assert blocks, "README.md shows no Python"
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        # Leading newlines make tracebacks point at the line of README.md itself.
        padding = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(padding + block[1], str(README), "exec"), namespace)
