"""Hundreds of models compiled and run in one process: resident memory must stay flat.

python benchmarks/model_growth.py [--models 200]
"""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.graph import Builder


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def compile_and_run(number: int) -> None:
    """A network that no other round has: sizes, weights and a symbolic batch of its own."""
    inner, outer = 8 + number % 7, 3 + number % 5
    b = Builder()
    x = b.input("x", "f32", ("n", inner))
    hidden = b.relu(b.matmul(x, np.full((inner, 16), 0.5, np.float32)) + float(number))
    b.output(b.softmax(b.matmul(hidden, np.ones((16, outer), np.float32))))
    model = tw.compile(b.build(), threads=1)
    for rows in (1, 1 + number % 9):
        (got,) = model.run([np.ones((rows, inner), np.float32)])
        assert np.allclose(got, 1 / outer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    count = parser.parse_args().models
    compile_and_run(0)
    print(f"{'models':>8}{'resident MB':>14}")
    for number in range(1, count + 1):
        compile_and_run(number)
        if number % max(1, count // 10) == 0:
            gc.collect()
            print(f"{number:8}{resident_mb():14.1f}", flush=True)


if __name__ == "__main__":
    main()
