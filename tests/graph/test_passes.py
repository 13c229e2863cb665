"""Passes keep the meaning of random modules, and do what they are for."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.graph.random_graphs import inputs, modules
from tilewright.graph import (
    Builder,
    Module,
    PassContext,
    PassPrinter,
    PassTimer,
    PassVerifier,
    Step,
    evaluate,
    find_op,
    module_text,
    parse_module,
    run_passes,
    verify,
)
from tilewright.graph.passes import (
    common_subexpressions,
    constant_folding,
    dead_code,
    folding_by,
    simplify_inference,
)
from tilewright.support.errors import InternalError, UserError

PASSES = [simplify_inference, constant_folding, common_subexpressions, dead_code]


@settings(max_examples=60, deadline=None)
@given(modules())
def test_passes_keep_the_meaning(module: Module) -> None:
    for flag in (True, False):
        given_inputs = inputs(flag=flag)
        expected = evaluate(module, given_inputs)
        changed = module
        with PassContext(instruments=[PassVerifier()]):
            changed = run_passes(changed, map(Step, PASSES))
        for a, b in zip(evaluate(changed, given_inputs), expected, strict=True):
            np.testing.assert_array_equal(a, b)


@settings(max_examples=30, deadline=None)
@given(modules())
def test_passes_settle(module: Module) -> None:
    for run in PASSES:
        once = run(module)
        assert run(once) is once, run.__name__


def after(run: Any, text: str) -> str:
    module = run(parse_module(text))
    verify(module)
    return module_text(module)


def test_dead_code() -> None:
    text = """
def unused(x: f32[3]):
    return x
def used(x: f32[3]) -> f32[3]:
    return x
def main(x: f32[3], c: bool[()]):
    a = exp(x)
    def then():
        b = exp(x)
        d = neg(x)
        return d
    def otherwise():
        return x
    y = branch(c, then, otherwise)
    z: f32[3] = call(used, y)
    return z
"""
    result = after(dead_code, text)
    assert "exp" not in result
    assert "unused" not in result and "def used" in result


def test_dead_code_keeps_what_defines_a_dimension() -> None:
    b = Builder("main")
    s = b.input("s", "i64", (2,))
    doubled = s + s
    n, _ = b.read(doubled)
    x = b.input("x", "f32", (4, 3))
    b.output(b.reshape(x, shape=[n, -1]))
    module = dead_code(b.build())
    verify(module)
    assert len(module.main.body) == 3


def test_common_subexpressions() -> None:
    text = """
def main(x: f32[3], c: bool[()]):
    a = exp(x)
    b = exp(x)
    d = add(x, f32(1.0))
    e = add(x, f32([1.0]))
    f = add(x, f32(1.0))
    def then():
        g = exp(x)
        h = neg(x)
        return g
    def otherwise():
        h = neg(x)
        return h
    y = branch(c, then, otherwise)
    i = neg(x)
    return a, b, d, e, f, y, i
"""
    result = after(common_subexpressions, text)
    assert result.count("exp(x)") == 1
    assert result.count("add(x") == 2
    # Neither side of a branch may stand for the other, nor for what comes after.
    assert result.count("neg(x)") == 3


def test_constant_folding() -> None:
    text = """
def main(x: f32[3]):
    a = add(i64([1, 2]), i64([3, 4]))
    b = cast(a, dtype=f32)
    def then():
        d = mul(x, f32(2.0))
        return d
    def otherwise():
        return x
    y = branch(bool(True), then, otherwise)
    return b, y
"""
    result = after(constant_folding, text)
    assert "f32([4.0, 6.0])" in result
    assert "branch" not in result and "mul(x, f32(2.0))" in result


def test_constant_folding_is_bounded_in_memory() -> None:
    b = Builder("main")
    column = b.constant(np.ones((1024, 1), "f4"))
    row = b.constant(np.ones((1, 1024), "f4"))
    b.output(column + row)
    module = b.build()
    with PassContext(options={"fold_limit": 1 << 20}):
        assert constant_folding(module) is module
    assert not constant_folding(module).main.body


def test_weights_are_folded_whatever_they_take() -> None:
    b = Builder("main")
    x = b.input("x", "f32", ("n", 64))
    table = b.mul(b.cast(np.ones((64, 64), np.int8), dtype="f32"), np.full(64, 0.5, np.float32))
    b.output(b.matmul(x, b.transpose(table, axes=[1, 0])), b.add(x, table))
    module = b.build()
    with PassContext(options={"fold_limit": 0, "fold_total": 0}):
        folded = constant_folding(module)
    assert [n.expr.op.name for n in folded.main.body] == ["matmul", "add"]  # type: ignore[attr-defined]


def test_what_only_leads_to_computed_factors_is_no_weight() -> None:
    b = Builder("main")
    x = b.input("x", "f32", (64, 64))
    b.output(b.matmul(x, b.add(x, b.cast(np.ones((64, 64), np.int8), dtype="f32"))))
    with PassContext(options={"fold_limit": 0, "fold_total": 0}):
        kept = constant_folding(b.build())
    assert [n.expr.op.name for n in kept.main.body] == ["cast", "add", "matmul"]  # type: ignore[attr-defined]


def test_folded_results_are_bounded_all_together() -> None:
    b = Builder("main")
    row = b.constant(np.ones((1, 1024), "f4"))
    b.output(*(b.expand(row * float(k), shape=[256, 1024]) for k in range(8)))
    with PassContext(options={"fold_total": 3 << 20}):
        left = constant_folding(b.build()).main.body
    assert len(left) == 5


def test_constant_folding_is_bounded_in_time() -> None:
    b = Builder("main")
    large = b.constant(np.ones((64, 64), "f4"))
    small = b.constant(np.ones(4, "f4"))
    b.output(large + large, small + small)
    with PassContext(options={"fold_seconds": 0}):
        left = constant_folding(b.build()).main.body
    assert len(left) == 1


def test_long_sums_are_folded_by_native_code() -> None:
    from tilewright.kernels.folding import fold_natively

    called: list[str] = []

    def counted(call: Any, outputs: Any) -> Any:
        called.append(call.op.name)
        return fold_natively(call, outputs)

    b = Builder("main")
    rng = np.random.default_rng(0)
    image = b.constant(rng.standard_normal((1, 16, 96, 96)).astype("f4"))
    kernel = b.constant(rng.standard_normal((128, 16, 3, 3)).astype("f4"))
    b.output(b.conv(image, kernel, pads=[1, 1, 1, 1]) + 1.0)
    module = b.build()
    folded = folding_by(counted)(module)
    assert called == ["conv"] and not folded.main.body
    np.testing.assert_allclose(
        evaluate(folded, [])[0], evaluate(module, [])[0], rtol=1e-4, atol=1e-3
    )


def test_what_fails_when_folded_is_left_for_later() -> None:
    text = """
def main(c: bool[()]):
    def then():
        y = cast(str(["no number"]), dtype=f32)
        return y
    def otherwise():
        return f32([1.0])
    z = branch(c, then, otherwise)
    return z
"""
    module = constant_folding(parse_module(text))
    np.testing.assert_array_equal(evaluate(module, [np.array(False)])[0], [1.0])


@pytest.mark.parametrize("fault", [InternalError("a rule is missing"), KeyError("name")])
def test_our_own_faults_are_not_hidden_by_folding(fault: Exception) -> None:
    def failing(call: Any, outputs: Any) -> Any:
        raise fault

    b = Builder("main")
    rows, columns = b.constant(np.ones((512, 1024), "f4")), b.constant(np.ones((1024, 512), "f4"))
    b.output(b.matmul(rows, columns))
    with pytest.raises(type(fault)):
        folding_by(failing)(b.build())


def test_faults_of_references_are_not_hidden_by_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(x: Any) -> Any:
        raise TypeError("no such type")

    monkeypatch.setattr(find_op("exp"), "_reference", failing)
    b = Builder("main")
    b.output(b.exp(b.constant(np.ones(3, "f4"))))
    with pytest.raises(TypeError, match="no such type"):
        constant_folding(b.build())


def test_simplify_inference() -> None:
    text = """
def main(x: f32[3]):
    a = identity(x)
    b = dropout(a, ratio=0.3)
    c = cast(b, dtype=f32)
    d = (c, x)
    e = d[0]
    y = relu(e)
    return y
"""
    assert "relu(x)" in after(simplify_inference, text)


def test_passes_are_near_linear() -> None:
    b = Builder("main")
    v = b.input("x", "f32", (4,))
    for _ in range(2000):
        v = b.identity(v + 1.0)
    b.output(v)
    module = b.build()
    timer = PassTimer()
    # Of this process: how busy the machine is must not matter.
    started = time.process_time()
    with PassContext(instruments=[timer]):
        run_passes(module, map(Step, PASSES))
    assert time.process_time() - started < 5
    assert "common_subexpressions" in str(timer)


# ---- contexts -----------------------------------------------------------------------------------


def late(module: Module) -> Module:
    del module
    return parse_module("def main(x: f32[3]):\n    return x")


def breaking(module: Module) -> Module:
    main = module.main
    return Module([main.with_([], main.results)])


def two_steps() -> Module:
    return parse_module("def main(x: f32[3]):\n    y = exp(x)\n    return y")


def test_levels_and_disabled_passes() -> None:
    steps = [Step(dead_code), Step(late, 3)]
    module = two_steps()
    assert run_passes(module, steps) is not module
    with PassContext(opt_level=2):
        assert run_passes(module, steps) is module
    with PassContext(opt_level=3, disabled_passes={"late"}):
        assert run_passes(module, steps) is module


def test_contexts_nest() -> None:
    with PassContext(opt_level=1) as outer:
        with PassContext(opt_level=3):
            assert PassContext.current().opt_level == 3
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 3


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(UserError, match="there is no opt_level 7"):
        PassContext(opt_level=7)
    with (
        PassContext(disabled_passes={"dead_cod"}),
        pytest.raises(UserError, match="did you mean dead_code"),
    ):
        run_passes(two_steps(), [Step(dead_code)])


def test_the_verifier_names_the_pass() -> None:
    with (
        PassContext(instruments=[PassVerifier()]),
        pytest.raises(InternalError, match="the pass breaking broke the module"),
    ):
        run_passes(two_steps(), [Step(dead_code), Step(breaking)])


def test_the_printer_prints_around_passes() -> None:
    out = io.StringIO()
    with PassContext(instruments=[PassPrinter({"dead_code"}, before=True, stream=out)]):
        run_passes(two_steps(), [Step(dead_code), Step(constant_folding)])
    assert out.getvalue().count("def main") == 2
    assert "# before dead_code" in out.getvalue()


def test_the_context_of_a_build() -> None:
    import tilewright as tw

    b = Builder("main")
    x = b.input("x", "f32", (2, 3))
    b.output(b.matmul(x, np.ones((3, 4), "f4")) * 2.0)
    module, timer = b.build(), tw.PassTimer()
    given_x = np.arange(6, dtype="f4").reshape(2, 3)
    with tw.PassContext(opt_level=3, disabled_passes={"fold_scale"}, instruments=[timer]):
        m = tw.build(module, target="llvm")
    m.set_input("x", given_x)
    m.run()
    np.testing.assert_allclose(m.get_output(0), evaluate(module, [given_x])[0])
    assert "fuse" in timer.seconds and "fold_scale" not in timer.seconds
    assert set(m.memory) == {"constants", "arena", "code"}
    with (
        tw.PassContext(disabled_passes={"fold_scales"}),
        pytest.raises(UserError, match="did you mean fold_scale"),
    ):
        tw.build(module)


def test_printers_and_verifiers_watch_a_build() -> None:
    import tilewright as tw

    stream = io.StringIO()
    with tw.PassContext(instruments=[tw.PassVerifier(), tw.PassPrinter(["fuse"], stream=stream)]):
        tw.build(two_steps())
    assert stream.getvalue().startswith("# after fuse\ndef main")
