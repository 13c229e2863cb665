"""The rules of algebra keep the meaning of graphs, and take away what they are for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tilewright as tw
from tests.graph.random_graphs import inputs, modules
from tests.graph.random_shapes import shape_inputs, shape_modules
from tilewright.graph import (
    Builder,
    Call,
    Module,
    PassContext,
    PassVerifier,
    Step,
    evaluate,
    module_text,
    parse_module,
    run_passes,
    verify,
)
from tilewright.graph.ir.types import known_dim
from tilewright.graph.passes import algebra, constant_folding, dead_code
from tilewright.support.errors import UserError

STEPS = [Step(algebra), Step(constant_folding), Step(dead_code)]


@settings(max_examples=150, deadline=None)
@given(shape_modules())
def test_rules_keep_the_meaning(module: Module) -> None:
    with np.errstate(all="ignore"):
        expected = evaluate(module, shape_inputs())
        with PassContext(instruments=[PassVerifier()]):
            changed = run_passes(module, STEPS)
        for a, b in zip(evaluate(changed, shape_inputs()), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(modules())
def test_rules_keep_the_meaning_of_control_flow(module: Module) -> None:
    with np.errstate(all="ignore"):
        expected = evaluate(module, inputs())
        with PassContext(instruments=[PassVerifier()]):
            changed = run_passes(module, STEPS)
        for a, b in zip(evaluate(changed, inputs()), expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("opt_level", [1, 3])
def test_compiled(opt_level: int) -> None:
    @settings(max_examples=6, deadline=None)
    @given(shape_modules())
    def check(module: Module) -> None:
        with np.errstate(all="ignore"):
            expected = evaluate(module, shape_inputs())
            got = tw.compile(module, opt_level=opt_level, threads=1).run(shape_inputs())
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)

    check()


def rewritten(text: str) -> str:
    """The body of `main` after the rules, once it is known to mean the same."""
    module = parse_module(text)
    verify(module)
    rng = np.random.default_rng(0)
    given_inputs = [
        rng.standard_normal([known_dim(d) or 5 for d in p.shape]).astype(p.dtype.numpy)
        for p in module.main.params
    ]
    with PassContext(instruments=[PassVerifier()]):
        changed = run_passes(module, STEPS)
    for a, b in zip(evaluate(changed, given_inputs), evaluate(module, given_inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return module_text(changed)


CASES = {
    "transposes compose": (
        """
def main(x: f32[2, 3, n]):
    a = transpose(x, axes=[1, 2, 0])
    y = transpose(a, axes=[2, 0, 1])
    return y
""",
        [],
        ["transpose"],
    ),
    "transposes cancel through maps": (
        """
def main(x: f32[2, 3, 4, 5]):
    a = transpose(x, axes=[0, 2, 3, 1])
    b = mul(a, f32([1.0, 2.0, 3.0]))
    c = relu(b)
    y = transpose(c, axes=[0, 3, 1, 2])
    return y
""",
        ["mul(x", "relu"],
        ["transpose(a", "transpose(c"],
    ),
    "a transpose stays where taking it away would need another": (
        """
def main(x: f32[2, 3], z: f32[2, 3]):
    a = transpose(x)
    b = transpose(z)
    c = add(a, b)
    d = exp(a)
    y = transpose(c)
    return y, d
""",
        ["transpose"],
        [],
    ),
    "what speaks of axes is no map": (
        """
def main(x: f32[3, 4]):
    a = transpose(x)
    b = quantize(a, f32([0.5, 1.0, 2.0]), u8([3, 4, 5]), axis=1)
    y = transpose(b)
    return y
""",
        ["transpose(x)", "quantize(a"],
        [],
    ),
    "a transposed product of bytes keeps its type": (
        """
def main(x: u8[2, 3, 4, 5], z: i8[2, 3, 5, 6]):
    a = matmul(x, z, dtype=i32)
    y = transpose(a, axes=[0, 2, 1, 3])
    return y
""",
        ["einsum", "i32[2, 4, 3, 6]"],
        ["transpose"],
    ),
    "a transpose of ones is a view": (
        """
def main(x: f32[1, 3, 1, n]):
    y = transpose(x, axes=[2, 1, 0, 3])
    z = transpose(x, axes=[1, 0, 2, 3])
    return y, z
""",
        ["reshape"],
        ["transpose"],
    ),
    "transposes meet across axes that are put together": (
        """
def main(x: f32[2, 7, 3, 4]):
    a = transpose(x, axes=[0, 2, 1, 3])
    b = reshape(a, shape=[6, 7, 4])
    c = transpose(b, axes=[0, 2, 1])
    y = reshape(c, shape=[2, 3, 4, 7])
    return y
""",
        ["transpose(x, axes=[0, 2, 3, 1])"],
        ["reshape"],
    ),
    "a product puts its result where a transpose would": (
        """
def main(a: f32[2, 3, 4, 5], b: f32[2, 3, 5, 6]):
    p = matmul(a, b)
    y = transpose(p, axes=[0, 2, 1, 3])
    return y
""",
        ["einsum"],
        ["transpose", "matmul"],
    ),
    "transposes of matrices whose batch is reshaped": (
        """
def main(x: f32[1, 8, n, 6], y: f32[8, n, 6]):
    a = transpose(y, axes=[0, 2, 1])
    b = reshape(a, shape=[1, 8, 6, n])
    z = matmul(x, b)
    return z
""",
        ["transpose_b=True"],
        ["transpose("],
    ),
    "transposes of matrices that are reshaped themselves": (
        """
def main(x: f32[8, 2, 3], y: f32[8, 4, 3]):
    a = transpose(y, axes=[0, 2, 1])
    b = reshape(a, shape=[8, 3, 4])
    c = transpose(x, axes=[0, 2, 1])
    d = reshape(c, shape=[8, 2, 3])
    z = matmul(d, b)
    return z
""",
        ["transpose_b=True", "transpose("],
        ["transpose_a=True"],
    ),
    "a product reads a transposed operand": (
        """
def main(a: f32[2, 4, 5], b: f32[2, 6, 5]):
    t = transpose(b, axes=[0, 2, 1])
    y = matmul(a, t)
    return y
""",
        ["transpose_b=True"],
        ["transpose(b"],
    ),
    "reshapes compose": (
        """
def main(x: f32[n, 3, 4]):
    a = reshape(x, shape=[n, 12])
    y = reshape(a, shape=[n, 3, 4])
    z = reshape(a, shape=[n, 4, 3])
    return y, z
""",
        ["reshape(x, shape=[n, 4, 3])"],
        ["reshape(a"],
    ),
    "maps move above reshapes, to the product": (
        """
def main(x: f32[6, 4], w: f32[4, 5], r: f32[2, 3, 5]):
    p = matmul(x, w)
    a = reshape(p, shape=[2, 3, 5])
    b = add(a, r)
    c = mul(b, f32([1.0, 2.0, 3.0, 4.0, 5.0]))
    y = tanh(c)
    return y
""",
        ["add(p, ", "y: f32[2, 3, 5] = reshape"],
        ["reshape(p"],
    ),
    "operands that are broadcast follow where a reshape only moves ones": (
        """
def main(x: f32[4, 3, 5], w: f32[5, 6], m: f32[1, 4, 1, 6]):
    p = matmul(x, w)
    a = reshape(p, shape=[1, 4, 3, 6])
    b = add(a, m)
    y = reshape(b, shape=[4, 3, 6])
    return y
""",
        ["add(p, ", "reshape(m, shape=[4, 1, 6])"],
        ["reshape(p"],
    ),
    "slices of slices": (
        """
def main(x: f32[10, 8]):
    a = slice(x, starts=[2], ends=[9], axes=[0])
    y = slice(a, starts=[1, -3], ends=[4, 8], axes=[0, 1])
    return y
""",
        ["starts=[3, 5], ends=[6, 8]"],
        ["slice(a"],
    ),
    "slices of what is put together": (
        """
def main(x: f32[3, n], z: f32[4, n]):
    a = concat(x, z, axis=0)
    p = slice(a, starts=[0], ends=[3], axes=[0])
    q = slice(a, starts=[4], ends=[6], axes=[0])
    y = concat(p, q, axis=0)
    return y
""",
        ["slice(z, starts=[1], ends=[3]"],
        ["slice(a"],
    ),
    "parts put together again": (
        """
def main(x: f32[9, n]):
    a = slice(x, starts=[0], ends=[4], axes=[0])
    b = slice(x, starts=[4], ends=[9], axes=[0])
    y = concat(a, b, axis=0)
    return y
""",
        [],
        ["slice", "concat"],
    ),
    "a slice whose rows are taken apart": (
        """
def main(x: f32[2, 12]):
    a = slice(x, starts=[4], ends=[8], axes=[1])
    y = reshape(a, shape=[2, 2, 2])
    return y
""",
        ["slice(", "starts=[2], ends=[4]"],
        ["starts=[4]"],
    ),
    "identities": (
        """
def main(x: f32[3], k: i32[3]):
    a = add(x, f32([-0.0, -0.0, -0.0]))
    b = mul(a, f32(1.0))
    c = sub(b, f32(0.0))
    d = div(c, f32([1.0]))
    e = neg(d)
    f = neg(e)
    g = relu(f)
    h = relu(g)
    i = pad(h, before=[0], after=[0])
    j = concat(i, axis=0)
    l = expand(j, shape=[3])
    m = add(k, i32(0))
    n = add(x, f32(0.0))
    return l, m, n
""",
        ["relu(x)", "add(x, f32(0.0))"],
        ["mul", "sub", "div", "neg", "pad", "concat", "expand", "add(k"],
    ),
    "casts that lose nothing": (
        """
def main(x: f32[3], k: i32[3]):
    a = cast(x, dtype=f64)
    b = cast(a, dtype=f32)
    c = cast(x, dtype=f16)
    d = cast(c, dtype=f32)
    e = cast(k, dtype=f32)
    f = cast(e, dtype=i32)
    g = cast(k, dtype=i64)
    h = cast(g, dtype=i16)
    return b, d, f, h
""",
        ["cast(c, dtype=f32)", "cast(e, dtype=i32)", "cast(k, dtype=i16)"],
        ["f64", "i64"],
    ),
    "reductions": (
        """
def main(x: f32[2, 3, 4], z: f32[2, 1, 4]):
    a = sum(x, axes=[2], keepdims=True)
    b = sum(a, axes=[1], keepdims=True)
    c = max(x, axes=[0], keepdims=False)
    d = max(c, axes=[1], keepdims=False)
    e = mean(z, axes=[1], keepdims=False)
    return b, d, e
""",
        ["sum(x, axes=[1, 2]", "max(x, axes=[0, 2]", "reshape(z"],
        ["mean"],
    ),
    "what is expanded for a map": (
        """
def main(x: f32[1, 4], z: f32[3, 4]):
    a = expand(x, shape=[3, 4])
    y = add(a, z)
    return y
""",
        ["add(x, z)"],
        ["expand"],
    ),
    "zeros around an image": (
        """
def main(x: f32[1, 2, 5, 5], w: f32[3, 2, 3, 3]):
    a = pad(x, before=[0, 0, 1, 1], after=[0, 0, 2, 1])
    y = conv(a, w, pads=[0, 1, 0, 0])
    return y
""",
        ["pads=[1, 2, 2, 1]"],
        ["pad("],
    ),
    "zero points around bytes": (
        """
def main(x: u8[1, 2, 5, 5], w: i8[3, 2, 3, 3]):
    a = pad(x, u8(7), before=[0, 0, 1, 1], after=[0, 0, 2, 1])
    y = conv(a, w, dtype=i32)
    return y
""",
        ["pads=[1, 1, 2, 1]", "fill=7"],
        ["pad("],
    ),
    "zero points around zeros": (
        """
def main(x: u8[1, 2, 5, 5], w: i8[3, 2, 3, 3]):
    a = pad(x, u8(7), before=[0, 0, 1, 1], after=[0, 0, 2, 1])
    y = conv(a, w, dtype=i32, pads=[1, 0, 0, 0])
    return y
""",
        ["pad(", "pads=[1, 0, 0, 0]"],
        ["fill"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    text, there, gone = CASES[name]
    result = rewritten(text)
    for part in there:
        assert part in result, result
    for part in gone:
        assert part not in result, result


def test_what_is_made_outside_is_not_moved_into_a_loop() -> None:
    text = """
def main(x: f32[2, 3], n: i64[()]):
    a = exp(x)
    t = reshape(a, shape=[3, 2])
    def body(i: i64[()], s: f32[3, 2]):
        u = mul(t, s)
        return bool(True), u
    y: f32[3, 2] = loop(n, None, t, body)
    return y
"""
    module = parse_module(text)
    assert algebra(module) is module


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_rows_are_taken_before_tables_are_mapped(axis: int) -> None:
    """Tables of bytes with scales by row, by column and for all, too large to be folded."""
    rng = np.random.default_rng(0)
    b = Builder("main")
    rows = b.input("rows", "i64", ("n", 2))
    table = b.cast(rng.integers(-9, 9, (5, 6, 4)).astype(np.int8), dtype="f32")
    for shape in ((5, 6, 4), (5, 1, 1), (6, 1), (4,), ()):
        table = b.mul(table, rng.standard_normal(shape).astype(np.float32))
    b.output(b.take(table, rows, axis=axis))
    module = b.build()
    changed = run_passes(module, STEPS)
    takes = [x.expr for x in changed.main.body if x.expr.op.name == "take"]  # type: ignore[attr-defined]
    tables = [t.args[0] for t in takes]
    assert tables and all(t is not None and t.is_constant for t in tables)
    last = changed.main.body[-1].expr.op.name  # type: ignore[attr-defined]
    assert last == "mul"
    indices = np.array([[3, -1], [0, 2], [1, 1]])
    for a, e in zip(evaluate(changed, [indices]), evaluate(module, [indices]), strict=True):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_taken_before_tables_are_dequantized(axis: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    b = Builder("main")
    rows = b.input("rows", "i64", ("n", 2))
    scale, zero = np.full(shape, 0.25, np.float32), np.full(shape, 7, np.int8)
    table = b.dequantize(rng.integers(-9, 9, (5, 4)).astype(np.int8), scale, zero)
    b.output(b.take(table, rows, axis=axis))
    module = b.build()
    changed = run_passes(module, [Step(algebra), Step(dead_code)])
    names = [x.expr.op.name for x in changed.main.body]  # type: ignore[attr-defined]
    assert names == ["take", "dequantize"]
    indices = np.array([[3, -1], [0, 2]])
    for a, e in zip(evaluate(changed, [indices]), evaluate(module, [indices]), strict=True):
        np.testing.assert_array_equal(a, e)


def test_weights_that_meet_padding_alone_are_left_out() -> None:
    rng = np.random.default_rng(0)
    fewer = 0
    for extent, kernel, step, gap, before, after in itertools.product(
        (1, 2, 3), (2, 3, 5), (1, 2), (1, 2), (0, 1, 3), (0, 2)
    ):
        if extent + before + after < (kernel - 1) * gap + 1:
            continue
        b = Builder("main")
        x = b.input("x", "f32", (2, 3, extent, 4))
        weight = rng.standard_normal((4, 3, kernel, 1)).astype(np.float32)
        attrs = {"strides": [step, 1], "dilations": [gap, 1], "pads": [before, 0, after, 0]}
        b.output(b.conv(x, weight, **attrs))
        module = b.build()
        changed = run_passes(module, STEPS)
        taps = changed.main.body[-1].expr.args[1].shape[2]  # type: ignore[union-attr]
        fewer += known_dim(taps) < kernel  # type: ignore[operator]
        image = rng.standard_normal((2, 3, extent, 4)).astype(np.float32)
        for a, e in zip(evaluate(changed, [image]), evaluate(module, [image]), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)
    assert fewer > 20


@pytest.mark.parametrize("batch", [1, 3, "n"])
def test_windows_as_large_as_the_image_are_products(batch: Any) -> None:
    rng = np.random.default_rng(0)
    b = Builder("main")
    x = b.input("x", "f32", (batch, 5, 3, 2))
    weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 5, 3, 2), 4))
    b.output(b.conv(x, weight, bias))
    module = b.build()
    changed = run_passes(module, STEPS)
    assert "conv" not in [x.expr.op.name for x in changed.main.body if isinstance(x.expr, Call)]
    image = rng.standard_normal((3 if batch == "n" else batch, 5, 3, 2)).astype(np.float32)
    (made,), (wanted,) = evaluate(changed, [image]), evaluate(module, [image])
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "attrs", [{"pads": [0, 0, 1, 0]}, {"groups": 5}, {"dilations": [1, 2]}, {"dtype": "f64"}]
)
def test_other_windows_stay(attrs: dict[str, Any]) -> None:
    b = Builder("main")
    x = b.input("x", "f32", (1, 5, 3, 3))
    shape = (5, 5 // attrs.get("groups", 1), 3, 2 if "dilations" in attrs else 3)
    b.output(b.conv(x, np.ones(shape, np.float32), **attrs))
    changed = run_passes(b.build(), [Step(algebra)])
    assert "conv" in [x.expr.op.name for x in changed.main.body if isinstance(x.expr, Call)]


def test_the_index_of_a_table_of_one_row_is_still_looked_at() -> None:
    b = Builder("main")
    row = b.input("row", "i64", ())
    table = b.cast(np.ones((1, 4), np.int8), dtype="f32")
    b.output(b.take(table, row))
    changed = run_passes(b.build(), [Step(algebra)])
    with pytest.raises(UserError, match="out of range"):
        evaluate(changed, [np.array(3)])
