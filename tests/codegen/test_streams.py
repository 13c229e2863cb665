"""Results of large kernels that memory bounds are written past the caches."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.ir import Function, parse_function
from tilewright.runtime import aligned_empty
from tilewright.schedule import schedule_by_rules


def kernel(name: str, rows: int = 8192, columns: int = 1024, dtype: str = "float32") -> Function:
    x, w = (te.placeholder((rows, columns), dtype, name=name) for name in ("X", "W"))
    made = {
        "double": lambda: te.compute((rows, columns), lambda i, j: x[i, j] + x[i, j], name="Y"),
        "softmax": lambda: ops.softmax(x, axis=-1),
        "transpose": lambda: ops.transpose(x, axes=(1, 0)),
        "sum": lambda: ops.sum(x, axes=(1,)),
        "matmul": lambda: ops.matmul(x, w, name="Y"),
    }
    inputs = [x, w] if name == "matmul" else [x]
    return te.function(inputs, [made[name]()], name=name)


def streamed(function: Function, target: str) -> list[int]:
    return schedule_by_rules(function, tw.Target.of(target)).attrs.get("streams", [])


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "skylake-avx512"])
@pytest.mark.parametrize("name", ["double", "softmax", "transpose"])
def test_large_results_bypass_the_caches(cpu: str, name: str) -> None:
    module = tw.build(kernel(name), f"llvm -mcpu={cpu} -num-cores=2 -l3=32M")
    vectors = {"x86-64": "xmm", "x86-64-v3": "ymm", "skylake-avx512": "zmm"}
    assert re.search(rf"movntp[sd]\s+%{vectors[cpu]}", module.asm)
    # Such stores come in any order: other threads must see them before they are told.
    assert "sfence" in module.asm


def test_only_where_it_can_help() -> None:
    x86 = "llvm -mcpu=skylake-avx512 -l3=32M"
    assert streamed(kernel("double"), x86) == [1]
    assert not streamed(kernel("double", 2048), x86), "it fits the caches"
    assert not streamed(kernel("double"), "llvm -mcpu=skylake-avx512 -l3=64M"), "so it does here"
    assert not streamed(kernel("double"), "llvm -mcpu=neoverse-n1"), "lines are not read first"
    assert not streamed(kernel("sum", 16384), x86), "it is read again and again while it is made"
    assert not streamed(kernel("matmul", 4096, 4096), x86), "memory is not what it waits for"
    assert not streamed(kernel("softmax", 8192, 1025), x86), "rows share lines"
    assert streamed(kernel("double", 8191, 1025), x86), "all is one row"
    assert not streamed(kernel("double").with_attrs(in_place=[0]), x86), "it is read there"


def test_results_that_are_read_again_stay_near() -> None:
    x = te.placeholder((8192, 1024), name="X")
    y = te.compute((8192, 1024), lambda i, j: te.exp(x[i, j]), name="Y")
    z = te.compute((8192, 1024), lambda i, j: y[i, j] + y[8191 - i, j], name="Z")
    function = te.function([x], [y, z], name="f")
    assert streamed(function, "llvm -mcpu=skylake-avx512") == [2]


def test_the_note_is_part_of_the_text() -> None:
    function = kernel("double").with_attrs(streams=[1])
    assert parse_function(str(function)).attrs["streams"] == [1]


@pytest.mark.parametrize(
    ("name", "dtype", "threads"),
    [("double", "float16", 1), ("softmax", "float32", 2), ("transpose", "float32", 2)],
)
def test_answers_are_the_same_wherever_results_lie(name: str, dtype: str, threads: int) -> None:
    """Arrays that do not begin with a line are written as usual."""
    function, target = kernel(name, 256, 512, dtype), f"llvm -num-cores={threads}"
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(dtype)
    plain = _run(tw.build(function, target), x, 0)
    streamed = tw.build(function.with_attrs(streams=[1]), target)
    for first in (0, 1):
        np.testing.assert_array_equal(_run(streamed, x, first), plain)


def _run(module: tw.Module, x: Any, first: int) -> Any:
    memory = aligned_empty((x.size + 1,), x.dtype)
    shape = x.shape[::-1] if module.name == "transpose" else x.shape
    out = memory[first : first + x.size].reshape(shape)
    module(x, out)
    return out
