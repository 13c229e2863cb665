"""Draws the speeds of lesson 5, as its own blocks measure them on this machine.

python docs/pictures/matmul_steps.py
"""

from __future__ import annotations

import re
from pathlib import Path

from bars import bar_chart

from tilewright import Target

HERE = Path(__file__).parent
LESSON = HERE.parent / "lessons" / "05_schedule_a_matmul.md"


def main() -> None:
    text = LESSON.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    # A product that does not fit the cache, and more time than a test has.
    code = "\n".join(blocks).replace("N = 256", "N = 512")
    code = code.replace("repeat = {}, 5", "repeat = {}, 25")
    namespace: dict[str, dict[str, float]] = {}
    exec(code, namespace)  # type: ignore[arg-type]
    machine = f"512 × 512 float32, one thread of {Target.of('llvm').cpu}, GFLOP/s"
    picture = bar_chart(machine, namespace["speeds"])
    (HERE / "matmul_steps.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
