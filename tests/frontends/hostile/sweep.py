"""Takes damaged models of every format through the whole compiler, and lists faults.

`python -m tests.frontends.hostile.sweep --count 1000 [FORMAT …]`
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.frontends.hostile.formats import FORMATS

ROOT = Path(__file__).parents[3]


def outcomes(folder: Path, lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each line with what came of its model."""
    worker: Any = subprocess.Popen(
        [sys.executable, "-m", "tests.frontends.hostile.worker", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "TILEWRIGHT_COMPILE_JOBS": "1",
        },
    )
    with worker:
        assert worker.stdout.readline() == "ready\n"
        for line in lines:
            worker.stdin.write(f"{line}\n")
            worker.stdin.flush()
            found = json.loads(worker.stdout.readline())
            yield line, found["outcome"], found["detail"]


def sweep(kind: str, first: int, count: int) -> bool:
    """Try a format, and print what came of it; whether there was no fault."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        lines = [f"{kind} {k}" for k in range(first, first + count)]
        for line, outcome, detail in outcomes(Path(name) / "models", lines):
            counts[outcome] += 1
            if outcome == "fault":
                print(f"{line}: {detail}", flush=True)
    print(kind, dict(counts), flush=True)
    return not counts["fault"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(FORMATS)}")
    parser.add_argument("--count", type=int, default=1000, help="mutations of each format")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="formats at a time")
    given = parser.parse_args()
    with ThreadPoolExecutor(given.jobs) as pool:
        kinds = given.formats or list(FORMATS)
        sound = list(pool.map(lambda kind: sweep(kind, given.first, given.count), kinds))
    sys.exit(not all(sound))


if __name__ == "__main__":
    main()
