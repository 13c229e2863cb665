"""Random kernels: with the barriers that are placed they do not race, and mean what they meant."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilewright.ir import Function, interpret, is_barrier, map_function, parse_function, seq, walk
from tilewright.lower import place_barriers
from tilewright.simt import SimtError, run

THREADS = 6
SHARED, GLOBAL = ("S", "R"), ("A", "B")


class Writer:
    """Writes a kernel of phases that read and write four buffers, by any permutation."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = 0

    def kernel(self) -> str:
        lines = [
            "def k(A: f32[12], B: f32[12], n: i64):",
            '    for b in thread(2, "blockIdx.x"):',
            *(f'        {name} = alloc(f32[{THREADS}], scope="shared")' for name in SHARED),
            f'        for t in thread({THREADS}, "threadIdx.x"):',
            *(f"            {name}[t] = {k}.0" for k, name in enumerate(SHARED)),
            *self.body(2, 3),
        ]
        return "\n".join(lines) + "\n"

    def body(self, depth: int, nesting: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            make = self.random.choice([self.phase, self.phase, self.loop, self.branch, self.alone])
            lines += make(depth, nesting) if nesting else self.phase(depth, nesting)
        return lines

    def phase(self, depth: int, _nesting: int) -> list[str]:
        to, of = self.random.sample(SHARED + GLOBAL, 2)
        count = self.random.choice([1, 2, THREADS])
        return [
            f'{"    " * depth}for t in thread({count}, "threadIdx.x"):',
            f"{'    ' * (depth + 1)}{self.element(to)} = {self.element(of)} + {self.element(of)}",
        ]

    def element(self, name: str, position: str = "t") -> str:
        step, start = self.random.choice([1, 5]), self.random.randint(0, THREADS - 1)
        index = f"({position} * {step} + {start}) % {THREADS}"
        return f"{name}[b * {THREADS} + {index}]" if name in GLOBAL else f"{name}[{index}]"

    def loop(self, depth: int, nesting: int) -> list[str]:
        self.loops += 1
        extent = self.random.choice(["2", "n", "n - 3", "3 if S[0] > 2.0 else 1"])
        head = f"for i{self.loops} in range({extent}):"
        return ["    " * depth + head, *self.body(depth + 1, nesting - 1)]

    def branch(self, depth: int, nesting: int) -> list[str]:
        condition = self.random.choice(["n > 1", "n > 3", "b > 0", "R[1] > 3.0", "A[b * 6] > 0.5"])
        lines = [f"{'    ' * depth}if {condition}:", *self.body(depth + 1, nesting - 1)]
        if self.random.random() < 0.5:
            lines += [f"{'    ' * depth}else:", *self.body(depth + 1, nesting - 1)]
        return lines

    def alone(self, depth: int, _nesting: int) -> list[str]:
        to, of = self.random.choices(SHARED + GLOBAL, k=2)
        return [f"{'    ' * depth}{self.element(to, '0')} = {self.element(of, '0')} * 0.5"]


def arguments() -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 4, (2, 12)).astype(np.float32))


def execute(function: Function) -> list[np.ndarray]:
    arrays = arguments()
    run(function, [*arrays, 2])
    return arrays


@pytest.mark.parametrize("seed", range(60))
def test_random_phases_with_barriers(seed: int) -> None:
    text = Writer(seed).kernel()
    wanted = arguments()
    interpret(parse_function(text), *wanted, n=2)
    function = place_barriers(parse_function(text))
    np.testing.assert_array_equal(execute(function), wanted, err_msg=text)
    for barrier in [s for s in walk(function.body) if is_barrier(s)][:3]:
        without = map_function(function, lambda s, m=barrier: seq() if s is m else None)
        try:
            got = execute(without)
        except SimtError:
            continue
        np.testing.assert_array_equal(got, wanted, err_msg=text)
