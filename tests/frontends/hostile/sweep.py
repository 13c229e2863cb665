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
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.frontends.hostile.formats import KINDS

ROOT = Path(__file__).parents[3]
#: What came of a model, and what there is to say about it.
Answer = tuple[str, str]


@contextmanager
def running_worker(folder: Path) -> Generator[Callable[[str], Answer]]:
    """Tells what comes of a line such as `tflite 17`; what all models need is imported once."""
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

    def outcome_of(line: str) -> Answer:
        worker.stdin.write(f"{line}\n")
        worker.stdin.flush()
        found = json.loads(worker.stdout.readline())
        return found["outcome"], found["detail"]

    with worker:
        assert worker.stdout.readline() == "ready\n"
        yield outcome_of


def sweep(kind: str, first: int, count: int) -> bool:
    """Try a format, and print what came of it; whether there was no fault."""
    counts: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory() as name,
        running_worker(Path(name) / "models") as outcome_of,
    ):
        for number in range(first, first + count):
            outcome, detail = outcome_of(f"{kind} {number}")
            counts[outcome] += 1
            if outcome == "fault":
                print(f"{kind} {number}: {detail}", flush=True)
    print(kind, dict(counts), flush=True)
    return not counts["fault"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--count", type=int, default=1000, help="mutations of each format")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="formats at a time")
    given = parser.parse_args()
    with ThreadPoolExecutor(given.jobs) as pool:
        kinds = given.formats or list(KINDS)
        sound = list(pool.map(lambda kind: sweep(kind, given.first, given.count), kinds))
    sys.exit(not all(sound))


if __name__ == "__main__":
    main()
