"""What rules decide can be decided differently: every candidate computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.compile import graph_passes
from tilewright.graph import Builder, KernelTable, PassContext, kernel_bindings, run_passes
from tilewright.ir import Function, function_text, interpret
from tilewright.schedule import Rules

#: Candidates of each choice that are tried.
_TRIED = 3


def _values(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


def _of(shape: tuple[int, ...], define: Callable[[te.Tensor], te.Tensor]) -> Function:
    x = te.placeholder(shape, name="X")
    return te.function([x], [define(x)], name="f")


def _transpose(*shape: int) -> Function:
    return _of(shape, lambda x: te.compute(shape[::-1], lambda i, j: x[j, i], name="Y"))


def _row_sums(*shape: int) -> Function:
    k = te.reduce_axis(shape[-1], name="k")
    return _of(
        shape, lambda x: te.compute(shape[:-1], lambda *i: te.sum(x[(*i, k)], axis=k), name="Y")
    )


def _column_sums(rows: int, columns: int) -> Function:
    k = te.reduce_axis(rows, name="k")
    return _of(
        (rows, columns),
        lambda x: te.compute((columns,), lambda j: te.sum(x[k, j], axis=k), name="Y"),
    )


def _kernel(module: Any, target: tw.Target, rule: str) -> Function:
    """The last kernel of a network that a rule schedules."""
    with PassContext(opt_level=3):
        fused = run_passes(module, graph_passes(target))
    table = KernelTable()
    for binding in kernel_bindings(fused.main):
        table(binding)
    return [f for f in table.functions.values() if _offered(f, target, rule)][-1]


def _offered(function: Function, target: tw.Target, rule: str) -> dict[str, tuple[object, ...]]:
    """The choices that a rule offers for a function."""
    offered = Rules().offered(function, target)
    return {name: options for name, options in offered.items() if name.startswith(f"{rule}(")}


def _attention(target: tw.Target) -> Function:
    b = Builder()
    q, k, v = (b.input(n, "f32", (1, 2, 9, 16)) for n in "qkv")
    scores = b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2]))
    b.output(b.matmul(b.softmax(scores * 0.25, axis=-1), v))
    return _kernel(b.build(), target, "attention")


def _pooling(target: tw.Target) -> Function:
    b = Builder()
    x = b.input("x", "f32", (1, 32, 9, 9))
    y = b.conv(x, _values(32, 1, 3, 3), pads=[1] * 4, groups=32)
    b.output(b.max_pool(y, kernel=[3, 3], strides=[2, 2], pads=[1] * 4))
    return _kernel(b.build(), target, "columns")


def _winograd(target: tw.Target, rule: str) -> Function:
    """The operator of Winograd's algorithm that a rule schedules."""
    b = Builder()
    x = b.input("x", "f32", (1, 1, 8, 4, 16))
    if rule == "positions":
        b.output(b.winograd_tiles(x, pads=[1] * 4, tiles=[4, 4]))
    elif rule == "transformed":
        weights = _values(1, 1, 16, 3, 3, 16)
        b.output(b.winograd_conv(x, weights, _values(1, 16), pads=[1] * 4, tile=4))
    else:
        weights = _values(6, 6, 1, 1, 16, 16)
        b.output(b.winograd_strips(x, weights, _values(1, 16), pads=[1] * 4))
    return _kernel(b.build(), target, rule)


Make = Callable[[tw.Target], Function]
#: Programs, the rule that schedules each, and the choices that it offers.
CASES: dict[str, tuple[Make, str, set[str]]] = {
    "attention": (_attention, "attention", {"scores", "results", "copy_values", "by_heads"}),
    "transpose": (lambda _: _transpose(37, 50), "transpose", {"tiles", "run"}),
    "thin transpose": (lambda _: _transpose(3, 50), "thin_transpose", {"lanes"}),
    "row sums": (lambda _: _row_sums(5, 70), "rows", {"partial_vectors", "parts"}),
    "a total": (lambda _: _row_sums(150), "rows", {"partial_vectors", "parts"}),
    "column sums": (lambda _: _column_sums(9, 50), "columns", {"tile", "strip", "serial_tiles"}),
    "pooling": (_pooling, "columns", {"tile", "strip", "serial_tiles"}),
    "long columns": (
        lambda _: _column_sums(70, 530),
        "long_columns",
        {"by_parts", "width", "lines", "rows"},
    ),
    "Winograd's tiles": (
        lambda t: _winograd(t, "positions"),
        "positions",
        {"order", "by_images"},
    ),
    "Winograd, weights transformed": (
        lambda t: _winograd(t, "transformed"),
        "transformed",
        {"tile"},
    ),
    "Winograd by strips": (lambda t: _winograd(t, "strips"), "strips", {"rows", "tile"}),
}


def _run(function: Function, like: Function) -> list[Any]:
    arrays = [_values(*(int(d.value) for d in b.shape)) for b in like.buffers]  # type: ignore[attr-defined]
    interpret(function, *arrays)
    return arrays


@pytest.mark.parametrize("cpu", ["skylake-avx512", "neoverse-n1"])
@pytest.mark.parametrize("case", CASES)
def test_every_candidate_computes_the_same(case: str, cpu: str) -> None:
    make, rule, wanted = CASES[case]
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    function = make(target)
    offered = _offered(function, target, rule)
    assert {name.rpartition(".")[2] for name in offered} == wanted
    want, own = _run(function, function), function_text(Rules().schedule(function, target).function)
    others = 0
    for name, candidates in offered.items():
        for number in range(1, min(_TRIED, len(candidates))):
            made = Rules(taken={name: number}).schedule(function, target)
            assert not made.declined, (name, candidates[number])
            others += function_text(made.function) != own
            for got, expected in zip(_run(made.function, function), want, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert others or all(len(candidates) == 1 for candidates in offered.values())


@pytest.mark.parametrize("rows", [40, 47])
def test_sums_by_parts_of_the_reduction_are_those_of_the_whole(rows: int) -> None:
    """Also where the last tile of rows is not full; the total keeps its epilogue."""
    b, target = Builder(), tw.Target.of("llvm")
    x = b.input("x", "f32", (rows, 512))
    b.output(b.relu(b.matmul(x, _values(512, 136)) + _values(136)))
    function = _kernel(b.build(), target, "contraction")
    rule, *inputs = "contraction(matmul)", *(_array(buffer) for buffer in function.buffers)
    packs = {
        f"{rule}.pack_rows": Rules().offered(function, target)[f"{rule}.pack_rows"].index(True)
    }
    made: list[Any] = []
    for number, parts in enumerate(Rules(taken=packs).offered(function, target)[f"{rule}.parts"]):
        taken = {**packs, f"{rule}.parts": number}
        schedule = Rules(taken=taken).schedule(function, target)
        assert not schedule.declined
        assert ("_rf" in function_text(schedule.function)) == (parts != 1)
        tw.build(schedule, target)(*inputs)
        made.append(inputs[-1].copy())
    assert len(made) > 2
    for got in made[1:]:
        np.testing.assert_allclose(got, made[0], rtol=1e-4, atol=1e-3)


def _array(buffer: Any) -> Any:
    return _values(*(int(d.value) for d in buffer.shape))
