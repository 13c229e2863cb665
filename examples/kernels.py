"""Compile a few kernels for this machine, check their answers, and time them beside NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import ops, te
from tilewright.support.timing import format_seconds, measure

Array = np.ndarray[Any, Any]


def matmul() -> tuple[tw.Function, list[Array], Callable[[], Array]]:
    a, b = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    function = te.function([a, b], [ops.matmul(a, b, name="C")], name="matmul")
    x, y = np.random.default_rng(0).random((2, 512, 512), dtype=np.float32)
    return function, [x, y], lambda: x @ y


def softmax() -> tuple[tw.Function, list[Array], Callable[[], Array]]:
    a = te.placeholder((1000, 1000), name="A")
    function = te.function([a], [ops.softmax(a)], name="softmax")
    x = np.random.default_rng(1).standard_normal((1000, 1000), dtype=np.float32)

    def reference() -> Array:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return function, [x], reference


def transpose() -> tuple[tw.Function, list[Array], Callable[[], Array]]:
    a = te.placeholder((1024, 768), name="A")
    function = te.function([a], [ops.transpose(a, axes=(1, 0))], name="transpose")
    x = np.random.default_rng(2).random((1024, 768), dtype=np.float32)
    return function, [x], lambda: np.ascontiguousarray(x.T)


def main() -> None:
    print(f"This machine: {tw.Target.of('llvm')}\n")
    print(f"{'kernel':12}{'built in':>10}{'tilewright':>12}{'numpy':>12}{'largest error':>16}")
    for make in (matmul, softmax, transpose):
        function, inputs, reference = make()
        start = time.perf_counter()
        module = tw.build(function)
        expected = reference()
        result = np.empty_like(expected)
        module(*inputs, result)
        built = time.perf_counter() - start
        error = float(np.abs(result - expected).max() / np.abs(expected).max())
        ours = module.time(*inputs, result, repeat=10, min_repeat_ms=10).median
        theirs = measure(reference, 10, 10).median
        shown = [format_seconds(t) for t in (built, ours, theirs)]
        print(f"{function.name:12}{shown[0]:>10}{shown[1]:>12}{shown[2]:>12}{error:16.1e}")
        assert error < 1e-5, f"{function.name} is wrong"
    print("\nAll answers agree with NumPy.")


if __name__ == "__main__":
    main()
