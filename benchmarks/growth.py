"""A thousand builds and runs in one process: resident memory must stay flat.

python benchmarks/growth.py [--builds 1000]
"""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright import te


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def build_and_run(number: int) -> None:
    """A kernel that no other round has: a product with a size and a constant of its own."""
    m, n, k = 5 + number % 13, 7 + number % 11, 9 + number % 17
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: c[i, j] + float(number), name="D")
    module = tw.build(te.function([a, b], [d], name="product"))
    out = np.empty((m, n), np.float32)
    module(np.ones((m, k), np.float32), np.ones((k, n), np.float32), out)
    assert (out == k + number).all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--builds", type=int, default=1000)
    count = parser.parse_args().builds
    build_and_run(0)
    print(f"{'builds':>8}{'resident MB':>14}")
    for number in range(1, count + 1):
        build_and_run(number)
        if number % (count // 10) == 0:
            gc.collect()
            print(f"{number:8}{resident_mb():14.1f}", flush=True)


if __name__ == "__main__":
    main()
