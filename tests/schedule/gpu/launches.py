"""Whether a function that is scheduled for a GPU fits one, and what it computes.

`tilewright.simt` executes lowered functions on any processor, and finds races.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

import tilewright as tw
from tests.graph import harness
from tilewright import simt, te
from tilewright.graph import find_op
from tilewright.ir import (
    Block,
    Buffer,
    Const,
    For,
    Function,
    Stmt,
    child_stmts,
    interpret,
    is_over_blocks,
    verify,
    walk,
)
from tilewright.kernels.pipeline import generated, lowered
from tilewright.schedule import RULES_BY_ADDRESS, Rules, Schedule, Trace
from tilewright.schedule.primitives.loops.launch_rest import touches_elements
from tilewright.support.ptxas import find_assembler
from tilewright.target import verify_for

Array = np.ndarray[Any, Any]
TARGET = tw.Target.of("cuda -arch=sm_90a")


def loops(name: str, *inputs: Array, symbolic: bool = False, **attrs: Any) -> Function:
    """The definition of an operator as a function."""
    op = find_op(name)
    values, _ = harness.operands(inputs, symbolic)
    bound, full = op.bind(values, attrs)
    tensors = [None if v is None else te.placeholder(v.shape, v.dtype, v.name) for v in bound]
    outs = op.define(tensors, full, op.infer(bound, full))
    return te.function([t for t in tensors if t is not None], list(outs), name=name)


def scheduled(
    function: Function, target: tw.Target = TARGET, rules: Rules = RULES_BY_ADDRESS
) -> Schedule:
    """The function under the rules for GPUs, which fits one."""
    s = rules.schedule(function, target)
    check_launches(s.function)
    again = Trace.from_json(s.trace.to_json()).replay(function)
    assert str(again) == str(s), "its trace leads to the same loops"
    return s


def check_launches(function: Function) -> None:
    """Everything is in launches, and these are of the form that GPUs run."""
    verify(function)
    verify_for(function, TARGET)
    assert not touches_elements(function.body), function
    for launch in launches_of(function):
        _check_launch(launch)


def launches_of(function: Function) -> list[For]:
    """The launches in order, each by its outermost loop."""
    found: list[For] = []

    def visit(stmt: Stmt) -> None:
        if is_over_blocks(stmt):
            assert isinstance(stmt, For)
            found.append(stmt)
        else:
            for child in child_stmts(stmt):
                visit(child)

    visit(function.body)
    return found


def threads_of(launch: For) -> dict[str, int]:
    """The threads of a block along each axis."""
    threads: dict[str, int] = {}
    for loop in walk(launch):
        if isinstance(loop, For) and loop.axis.startswith("threadIdx"):
            assert isinstance(loop.extent, Const), "the size of a block of threads is a number"
            threads[loop.axis] = max(threads.get(loop.axis, 1), int(loop.extent.value))
    return threads


def _check_launch(launch: For) -> None:
    inner: Stmt = launch
    while is_over_blocks(inner):
        assert isinstance(inner, For)
        inner = inner.body
    assert not any(is_over_blocks(s) for s in walk(inner)), "loops of blocks are directly nested"
    assert np.prod([1, *threads_of(launch).values()]) <= 1024
    assert not any(isinstance(s, For) and s.kind == "parallel" for s in walk(launch))


def blocks_in(launch: For) -> list[str]:
    """The names of the blocks in a launch."""
    return [s.name for s in walk(launch) if isinstance(s, Block)]


def run(
    function: Function, inputs: Sequence[Any], shapes: Sequence[Any], dims: Any = None
) -> list[Array]:
    """What the function computes thread by thread; races and memory that nobody wrote are found."""
    outputs = [np.full(shape, 77, dtype) for shape, dtype in shapes]
    _execute(function, [*inputs, *outputs], [], dims or {})
    return outputs


def execute_native(function: Any, arrays: Any, numbers: Any, types: Any, dims: Any) -> list[Any]:
    """What `harness.check` compares, under the rules for GPUs and thread by thread."""
    outputs = [harness._filled(t, dims) for t in types]
    plain = [np.asarray(a, order="C") for a in arrays]
    _execute(scheduled(function).function, [*plain, *outputs], numbers, dims)
    return outputs


def _execute(
    function: Function, arrays: Sequence[Array], numbers: Sequence[int], dims: Any
) -> None:
    """Rules may give parameters other shapes over the same memory."""
    given, rest = iter(arrays), iter(numbers)
    arguments: list[Any] = []
    for param in function.params:
        if isinstance(param, Buffer):
            array = next(given)
            arguments.append(array.reshape(_shape(param, array)) if array.size else array)
        else:
            arguments.append(next(rest))
    known = [dims[d] for d in function.dims if d in dims]
    flat = lowered(function, TARGET)
    # Small number formats are passed as their bits.
    for k, param in enumerate(flat.params):
        if isinstance(param, Buffer) and param.dtype.numpy != arguments[k].dtype:
            arguments[k] = arguments[k].view(param.dtype.numpy)
    simt.run(flat, [*arguments, *known])


def assemble(function: Function, target: tw.Target = TARGET) -> str:
    """The code of a scheduled function, which NVIDIA's assembler takes, where there is one."""
    assembler = find_assembler()
    with patch.dict(os.environ, TILEWRIGHT_PTXAS="off"):
        text = generated(function, target).assembly()
    if assembler is not None:
        for code in re.split(r"^(?=\.version)", text, flags=re.MULTILINE)[1:]:
            made = assembler.assemble(code, target.cpu)
            assert made.code, made.said
    return text


def _shape(buffer: Buffer, array: Array) -> Sequence[int]:
    known = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    if len(known) == buffer.ndim:
        return known
    return array.shape if buffer.ndim == array.ndim else [-1, *known]


def interpreted(function: Function, inputs: Sequence[Any], shapes: Sequence[Any]) -> list[Array]:
    """The same by interpreting it: for a few elements."""
    outputs = [np.full(shape, 77, dtype) for shape, dtype in shapes]
    interpret(function, *inputs, *outputs)
    return outputs
