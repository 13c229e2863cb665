"""Exported libraries: how large they are, how fast a program with one starts, beside Python.

    python benchmarks/exported_library.py

Compiles examples/c with the system's C compiler. The time is from the start of the process to its
end, with one inference in between: the least of several starts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples" / "c"
sys.path.insert(0, str(EXAMPLES))

LOAD = """
import sys
import numpy as np
import tilewright as tw
tw.load(sys.argv[1]).run([np.zeros((4, 24), np.float32)])
"""


def starts(command: list[str], count: int = 10) -> float:
    """Seconds from start to end, at best."""
    taken: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - begin)
    return min(taken)


def main() -> None:
    import export  # examples/c/export.py

    import tilewright as tw

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export.main(folder)
        tw.compile(export.classifier()).save(folder / "classifier.twm")
        program, source = folder / "classify", EXAMPLES / "classify.c"
        files = [str(source), str(folder / "classifier.a")]
        subprocess.run(["cc", f"-I{folder}", *files, "-lpthread", "-o", program], check=True)
        for file in ("classifier.a", "classifier.twm", "classify"):
            print(f"{file:16} {(folder / file).stat().st_size / 1e3:8.1f} kB")
        c = starts([str(program)])
        python = starts([sys.executable, "-c", LOAD, str(folder / "classifier.twm")], 5)
        print(f"C program        {c * 1e3:8.1f} ms from start to end")
        print(f"Python, tw.load  {python * 1e3:8.1f} ms from start to end")


if __name__ == "__main__":
    main()
