"""Schedulers: what the rules make is one trace, and their choices can be others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.compile import graph_passes
from tilewright.graph import (
    Builder,
    KernelTable,
    Module,
    PassContext,
    evaluate,
    kernel_bindings,
    run_passes,
)
from tilewright.ir import Function, function_text, interpret
from tilewright.kernels.pipeline import Options, scheduled
from tilewright.schedule import RULES, RULES_BY_ADDRESS, Given, Recorded, Rules, Trace, scheduler_of
from tilewright.support.errors import UserError

CPUS = ["skylake-avx512", "haswell", "neoverse-n1", "apple-m1"]


def _weight(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


def _images() -> Module:
    """A stem, a residual block, a depthwise convolution with a gate, a classifier."""
    b = Builder()
    x = b.input("x", "f32", (1, 3, 32, 32))
    y = b.relu(b.conv(x, _weight(32, 3, 7, 7), strides=[2, 2], pads=[3] * 4))
    y = b.max_pool(y, kernel=[3, 3], strides=[2, 2], pads=[1] * 4)
    z = b.relu(b.conv(y, _weight(32, 32, 3, 3), pads=[1] * 4))
    y = b.relu(b.add(b.conv(z, _weight(32, 32, 3, 3), pads=[1] * 4), y))
    y = b.relu(b.conv(y, _weight(32, 1, 3, 3), pads=[1] * 4, groups=32, strides=[2, 2]))
    gate = b.sigmoid(b.conv(b.mean(y, axes=[2, 3], keepdims=True), _weight(32, 32, 1, 1)))
    y = b.conv(b.mul(y, gate), _weight(48, 32, 1, 1))
    b.output(b.softmax(b.matmul(b.mean(y, axes=[2, 3]), _weight(48, 100)), axis=-1))
    return b.build()


def _rows() -> Module:
    """Attention, a normalization, a network by rows."""
    b = Builder()
    x = b.input("x", "f32", (1, 96, 64))

    def heads(axes: list[int]) -> Any:
        made = b.reshape(b.matmul(x, _weight(64, 64)), shape=[1, 96, 2, 32])
        return b.transpose(made, axes=axes)

    q, k, v = (heads(axes) for axes in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    mixed = b.matmul(b.softmax(b.mul(b.matmul(q, k), np.float32(0.2)), axis=-1), v)
    y = b.reshape(b.transpose(mixed, axes=[0, 2, 1, 3]), shape=[1, 96, 64])
    y = b.layer_norm(b.add(x, y), _weight(64), _weight(64))
    b.output(b.add(y, b.matmul(b.gelu(b.matmul(y, _weight(64, 256))), _weight(256, 64))))
    return b.build()


def _steps() -> Module:
    b = Builder()
    x = b.input("x", "f32", (6, 2, 32))
    y, *_ = b.lstm(x, _weight(1, 256, 32), _weight(1, 256, 64), _weight(1, 512))
    b.output(y)
    return b.build()


def _kernels(module: Module, target: tw.Target, precision: str) -> list[Function]:
    with PassContext(opt_level=3, precision=precision):
        fused = run_passes(module, graph_passes(target))
    table = KernelTable()
    for binding in kernel_bindings(fused.main):
        table(binding)
    return list(table.functions.values())


def _plain() -> list[Function]:
    """A product of a matrix with itself, products of small numbers, a function of memory alone."""
    a, x = te.placeholder((64, 64), name="A"), te.placeholder((4096, 4096), name="X")
    made = [te.function([a], [ops.matmul(a, a, name="C")], name="square")]
    for dtype, out in (("int8", "int32"), ("bfloat16", "float32")):
        a, b = (te.placeholder((48, 48), dtype, name=n) for n in "AB")
        made.append(te.function([a, b], [ops.matmul(a, b, dtype=out)], name=dtype))
    return [*made, te.function([x], [ops.transpose(x, axes=(1, 0))], name="transpose")]


def _assert_replays(function: Function, target: tw.Target, scheduler: Rules) -> None:
    made = scheduler.schedule(function, target)
    text = json.dumps(made.trace.to_json())
    again = Recorded(Trace.from_json(text)).schedule(function, target)
    assert function_text(again.function) == function_text(made.function)
    assert json.dumps(again.trace.to_json()) == text and str(again.trace) == str(made.trace)


@pytest.mark.parametrize(
    ("network", "precision", "cpu"),
    [
        (_images, "float32", "skylake-avx512"),
        (_images, "float32", "neoverse-n1"),
        (_images, "int8-dynamic", "haswell"),
        (_images, "int8-dynamic", "apple-m1"),
        (_rows, "float32", "haswell"),
        (_rows, "float32", "neoverse-n1"),
        (_steps, "float32", "skylake-avx512"),
        (_steps, "float32", "apple-m1"),
    ],
)
def test_the_schedules_of_networks_replay(
    network: Callable[[], Module], precision: str, cpu: str
) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    for function in _kernels(network(), target, precision):
        _assert_replays(function, target, RULES_BY_ADDRESS)


@pytest.mark.parametrize("cpu", [*CPUS, "sapphirerapids"])
def test_the_schedules_of_functions_replay(cpu: str) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    for function in _plain():
        _assert_replays(function, target, RULES)


def test_attention_whose_queries_are_its_values() -> None:
    """All projections have the same weights here, so that one block makes both operands."""
    module, x = _rows(), _weight(1, 96, 64)
    target = tw.Target.of("llvm -num-cores=2")
    for function in _kernels(module, target, "float32"):
        declined = RULES_BY_ADDRESS.schedule(function, target).declined
        assert all(d.rule != "attention" for d in declined)
    (want,), (got,) = evaluate(module, [x]), tw.compile(module, target, opt_level=3).run([x])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


# ---- choices ------------------------------------------------------------------------------------


def _matmul() -> Function:
    a, b = te.placeholder((20, 12), name="A"), te.placeholder((12, 40), name="B")
    return te.function([a, b], [ops.matmul(a, b, name="C")], name="f")


@pytest.mark.parametrize("cpu", ["skylake-avx512", "neoverse-n1"])
def test_every_choice_of_a_product_is_right_or_refused(cpu: str) -> None:
    target, function = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2"), _matmul()
    offered = RULES.offered(function, target)
    names = {name.rpartition(".")[2] for name in offered}
    assert {"tile", "order", "pack_rows", "pack_columns", "chunk", "prefetch"} <= names
    a, b = (_weight(*shape) for shape in ((20, 12), (12, 40)))
    own, seen = function_text(RULES.schedule(function, target).function), set[str]()
    for name, candidates in offered.items():
        for number in range(min(3, len(candidates))):
            made = Rules(taken={name: number}).schedule(function, target)
            seen.add(function_text(made.function))
            assert number or function_text(made.function) == own, "the rule's own choice is first"
            c = np.full((20, 40), np.nan, "f4")
            interpret(made.function, a, b, c)
            np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert len(seen) > 4


def test_choices_that_are_not_there() -> None:
    target = tw.Target.of("llvm -mcpu=skylake-avx512")
    with pytest.raises(UserError, match=r"no choice contraction\(C\)\.tiles .*"):
        Rules(taken={"contraction(C).tiles": 0}).schedule(_matmul(), target)
    with pytest.raises(UserError, match=r"contraction\(C\)\.order has no candidate 7"):
        Rules(taken={"contraction(C).order": 7}).schedule(_matmul(), target)


def test_schedulers_are_told_apart() -> None:
    target = tw.Target.of("llvm -mcpu=skylake-avx512")
    trace = RULES.schedule(_matmul(), target).trace
    others = [Rules(taken={"contraction(C).tile": 1}), Recorded(trace), Recorded(Trace())]
    assert len({s.key for s in (RULES, RULES_BY_ADDRESS, *others)}) == 5


def test_keys_make_the_same_schedulers() -> None:
    target = tw.Target.of("llvm -mcpu=skylake-avx512")
    made = RULES.schedule(_matmul(), target)
    for scheduler in (RULES, RULES_BY_ADDRESS, Recorded(made.trace), Given()):
        again = scheduler_of(scheduler.key)
        assert again.key == scheduler.key
        text = str(scheduler.schedule(_matmul(), target).function)
        assert str(again.schedule(_matmul(), target).function) == text
    with pytest.raises(UserError, match="no scheduler 'luck'"):
        scheduler_of("luck {}")


def test_a_recorded_schedule_goes_through_the_pipeline() -> None:
    target = tw.Target.of("llvm")
    made = RULES_BY_ADDRESS.schedule(_matmul(), target)
    options = Options(scheduler=Recorded(made.trace).key)
    assert str(scheduled(_matmul(), target, options)) == str(made.function)
