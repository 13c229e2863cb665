"""Decisions of passes: listed by keys that names do not change, and taken otherwise."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.test_winograd import convolution, ops_of, values
from tilewright.graph import (
    Builder,
    Call,
    Decision,
    Module,
    PassContext,
    decision_key,
    passes,
    verify,
)

#: What is chosen depends on the machine.
TARGET = tw.Target.of("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")


def planned(module: Module, **taken: str) -> tuple[Module, dict[str, Decision]]:
    """The module after the passes that choose how convolutions are computed, and their decisions;
    `taken` names options by the passes that decide."""
    with PassContext() as context:
        passes.winograd(TARGET)(_blocked(module))
        listed = context.decided.values()
    table = {d.key: taken[d.made_by] for d in listed if d.made_by in taken}
    with PassContext(decisions={TARGET.machine: table}) as context:
        made = passes.winograd(TARGET)(_blocked(module))
        return made, {d.made_by: d for d in context.decided.values()}


def _blocked(module: Module) -> Module:
    return passes.constant_folding(passes.plan_layouts(TARGET)(module))


def network(x: str = "x", rows: Any = "n", steps: int = 1) -> Call:
    b = Builder()
    image = b.input(x, "f32", (rows, 8, 14, 14))
    b.output(b.conv(image, values(8, 8, 3, 3), strides=[steps, steps], pads=[1] * 4))
    call = b.build().main.body[-1].expr
    assert isinstance(call, Call)
    return call


def key_of(call: Call) -> str:
    return decision_key(call, [])


def test_names_do_not_change_a_key() -> None:
    assert key_of(network()) == key_of(network("y", "m"))
    others = {key_of(network(rows=4)), key_of(network(steps=2)), key_of(network())}
    assert len(others) == 3


def test_own_choices_come_first() -> None:
    made, decided = planned(convolution())
    decision = decided["winograd"]
    assert decision.taken == decision.default != "direct" in decision.others
    assert decision.cycles > 0 and decision.calls == 1 and not decision.refused
    assert str(decision) == "winograd of 3×3 convolution of 64 to 64 channels of 14×14"
    assert ops_of(made)["conv_blocked"] == 0


def test_others_are_taken_where_the_context_says_so() -> None:
    made, decided = planned(convolution(), winograd="direct")
    assert decided["winograd"].taken == "direct"
    assert ops_of(made)["conv_blocked"] == 1


def test_what_is_no_option_is_refused_and_told_once() -> None:
    made, decided = planned(convolution(), winograd="by magic")
    decision = decided["winograd"]
    assert decision.refused == "by magic" and decision.taken == decision.default
    assert ops_of(made)["conv_blocked"] == 0


# ---- layouts ------------------------------------------------------------------------------------


def images(*widths: int) -> Module:
    """Convolutions one after the other, with so many channels."""
    b = Builder()
    x = b.input("x", "f32", (1, widths[0], 16, 16))
    for inputs, outputs in pairwise(widths):
        x = b.relu(b.conv(x, values(outputs, inputs, 3, 3), pads=[1] * 4))
    b.output(x)
    return b.build()


def layouts_of(module: Module, table: dict[str, str]) -> tuple[Module, list[Decision]]:
    with PassContext(decisions={TARGET.machine: table}) as context:
        made = passes.plan_layouts(TARGET)(module)
        verify(made)
        return made, list(context.decided.values())


def test_the_widths_of_blocks_are_decided_for_the_whole_graph() -> None:
    module = images(3, 32, 32)
    _, (whole, *_) = layouts_of(module, {})
    assert whole.subject == "all 2 convolutions" and whole.default == "as planned"
    narrow, _ = layouts_of(module, {whole.key: "blocks of 4 at most"})
    widths = {str(v.shape[-1]) for b in narrow.main.body for v in b.outputs if v.ndim == 5}
    assert widths == {"4"}


def test_convolutions_are_decided_about_where_that_may_pay() -> None:
    module = images(3, 32, 32)
    _, (_, first, *_) = layouts_of(module, {})
    assert first.default == "plain to blocks of 16" and first.subject.startswith("conv of f32[1, 3")
    other = first.others[0]
    made, decided = layouts_of(module, {first.key: other})
    assert {d.key: d.taken for d in decided}[first.key] == other == "blocks of 4 to blocks of 16"
    assert ops_of(made)["conv_into_blocked"] == 0 and ops_of(made)["to_blocked"] == 1


def test_what_suits_one_graph_is_nothing_to_another() -> None:
    """What is best for a convolution depends on what is around it."""
    keys = [
        {d.key for d in layouts_of(images(*widths), {})[1]} for widths in ((3, 32), (3, 32, 32))
    ]
    assert keys[0] and keys[1] and keys[0].isdisjoint(keys[1])


def test_graphs_without_images_have_no_layouts_to_decide_about() -> None:
    b = Builder()
    x = b.input("x", "f32", (8, 8))
    b.output(b.relu(b.matmul(x, values(8, 8))))
    assert not layouts_of(b.build(), {})[1]


def test_every_layout_computes_the_same() -> None:
    module, data = images(3, 24, 24), values(1, 3, 16, 16)
    model = tw.compile(module)
    assert isinstance(model, tw.Model)
    want, listed = model(data), [d for d in model.decisions if d.made_by == "plan_layouts"]
    assert listed
    for decision in listed:
        for option in decision.others:
            with PassContext(decisions={model.target.machine: {decision.key: option}}):
                made = tw.compile(module)
            np.testing.assert_allclose(made(data), want, atol=1e-4 * np.abs(want).max())


# ---- borders of kernels -------------------------------------------------------------------------


def kernels_of(module: Module, table: dict[str, str]) -> tuple[int, list[Decision]]:
    with PassContext(decisions={TARGET.machine: table}) as context:
        made = passes.fuse(TARGET)(module)
        verify(made)
        return len(made.main.body), list(context.decided.values())


def gelu() -> Module:
    """A product whose results many operations follow, by several readers of one value."""
    b = Builder()
    x = b.input("x", "f32", (16, 32))
    y = b.add(b.matmul(x, values(32, 64)), values(64))
    half = b.mul(y, np.float32(0.5))
    b.output(b.mul(half, b.add(b.erf(b.mul(y, np.float32(0.7))), np.float32(1))))
    return b.build()


def residual() -> Module:
    b = Builder()
    x, skip = b.input("x", "f32", (16, 32)), b.input("skip", "f32", (16, 64))
    b.output(b.relu(b.add(b.matmul(x, values(32, 64)), skip)))
    return b.build()


def scores(operator: str) -> Module:
    """A sum over what costs little, or much."""
    b = Builder()
    x = b.input("x", "f32", (16, 32))
    b.output(b.sum(getattr(b, operator)(x), axes=[1]))
    return b.build()


def test_what_follows_a_product_may_be_a_kernel_of_its_own() -> None:
    for module in (gelu(), residual()):
        count, (border,) = kernels_of(module, {})
        assert count == 1 and border.options == ("together", "apart")
        assert kernels_of(module, {border.key: "apart"})[0] == 2


def test_what_a_reduction_computes_again_may_be_a_kernel_of_its_own() -> None:
    count, (border,) = kernels_of(scores("tanh"), {})
    assert kernels_of(scores("tanh"), {border.key: border.others[0]})[0] == 3 - count
    assert kernels_of(scores("neg"), {}) == (1, []), "that is cheap at any rate"


@pytest.mark.parametrize("module", [gelu(), residual(), scores("tanh")])
def test_every_border_computes_the_same(module: Module) -> None:
    model = tw.compile(module)
    assert isinstance(model, tw.Model)
    data = [values(16, 32 if spec.name == "x" else 64) for spec in model.inputs]
    want, (border,) = model(*data), model.decisions
    with PassContext(decisions={model.target.machine: {border.key: border.others[0]}}):
        made = tw.compile(module)
    assert isinstance(made, tw.Model) and len(made.kernels) != len(model.kernels)
    np.testing.assert_allclose(made(*data), want, rtol=1e-5, atol=1e-4)


# ---- what applies to all ------------------------------------------------------------------------


def test_contexts_inside_decide_the_same() -> None:
    with PassContext(decisions={"llvm": {"a": "b"}}), PassContext(opt_level=2) as inner:
        assert inner.decisions == {"llvm": {"a": "b"}}
    assert not PassContext.current().decisions


def test_weights_do_not_outgrow_their_limit_by_a_decision() -> None:
    module = convolution((1, 128, 14, 14), 128)
    _, decided = planned(module)
    larger = next(o for o in decided["winograd"].options if o.startswith("4×4 tiles of 3×3"))
    with PassContext(options={"winograd_bytes": 0}) as context:
        passes.winograd(TARGET)(_blocked(module))
        (key,) = (d.key for d in context.decided.values() if d.made_by == "winograd")
    table = {TARGET.machine: {key: larger.partition(",")[0]}}
    with PassContext(options={"winograd_bytes": 0}, decisions=table):
        made = passes.winograd(TARGET)(_blocked(module))
    assert ops_of(made)["winograd_tiles"] == 0


@pytest.mark.parametrize(("steps", "size"), [(1, (1, 32, 15, 13)), (2, (1, 64, 47, 49))])
def test_every_option_computes_the_same(steps: int, size: tuple[int, ...]) -> None:
    b = Builder()
    x, channels = b.input("x", "f32", size), size[1]
    weight = values(channels, channels, 3, 3)
    image = b.conv(b.relu(x), weight, strides=[steps] * 2, pads=[1] * 4)
    b.output(b.relu(image))
    module, data = b.build(), values(*size)
    model = tw.compile(module)
    assert isinstance(model, tw.Model)
    want = model(data)
    (decision,) = (d for d in model.decisions if d.made_by == "winograd")
    assert len(decision.options) >= 2
    for option in decision.options:
        with PassContext(decisions={model.target.machine: {decision.key: option}}):
            made = tw.compile(module)
        assert isinstance(made, tw.Model)
        assert {d.key: d.taken for d in made.decisions}[decision.key] == option
        np.testing.assert_allclose(made(data), want, atol=1e-4 * np.abs(want).max())


def test_a_record_that_does_not_apply_is_told_of_once() -> None:
    module = convolution((1, 32, 14, 14), 32)
    model = tw.compile(module, TARGET)
    assert isinstance(model, tw.Model)
    table = {model.target.machine: {d.key: "by magic" for d in model.decisions}}
    told = r"the record for .* \(and \d+ others\) does not apply any more, .*'by magic' is none of"
    with PassContext(decisions=table), pytest.warns(UserWarning, match=told) as warned:
        made = tw.compile(module, TARGET)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = tw.compile(module, TARGET)
    assert isinstance(made, tw.Model) and isinstance(again, tw.Model)
    assert made.kernels == again.kernels
