"""Quantization against NumPy: types; scales of one number, an axis, blocks; integer products."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder, Call, Module, evaluate, passes
from tilewright.kernels.levels import kernel_levels
from tilewright.support.errors import UserError

RNG = np.random.default_rng(10)
TYPES = [
    *("int8 uint8 int16 uint16".split()),
    *(getattr(ml_dtypes, n) for n in "int4 uint4 int2 uint2".split()),
    *(getattr(ml_dtypes, n) for n in "float8_e4m3fn float8_e5m2 float8_e4m3fnuz".split()),
    *(getattr(ml_dtypes, n) for n in "float8_e5m2fnuz float4_e2m1fn".split()),
]


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def bytes_(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_types(dtype: Any) -> None:
    x = np.concatenate([normal(9) * 20, np.array([0, 0.25, 0.75, 1e6, -1e6], "f4")])
    scale, zero = np.float32(0.5), np.array(1, dtype)
    if np.dtype(dtype).kind == "V":
        zero = np.array(0, dtype)
    stored = check_definition("quantize", [x, scale, zero], symbolic=False)[0]
    check_definition("quantize", [x, scale], dtype=np.dtype(dtype), symbolic=False)
    check_definition("dequantize", [stored, scale, zero], symbolic=False)


def test_natively() -> None:
    x, scale = normal(3, 5, 4) * 50, np.abs(normal(5)) + 0.1
    zero = RNG.integers(-9, 9, 5).astype("i1")
    stored = check("quantize", [x, scale, zero], axis=1)[0]
    check("dequantize", [stored, scale, zero], axis=1, symbolic=False)
    small = ml_dtypes.int4
    stored = check("quantize", [x, np.float32(3)], dtype=np.dtype(small), symbolic=False)[0]
    check("dequantize", [stored, np.float32(3)], symbolic=False)
    check("dynamic_quantize", [x], symbolic=False)


def test_scales() -> None:
    x, zero = normal(3, 7, 4) * 40, np.uint8(100)
    check_definition("quantize", [x, np.float32(0.7), zero])
    check_definition("quantize", [x, np.full(1, 0.7, "f4"), np.full(1, 100, "u1")], symbolic=False)
    check_definition("quantize", [x, np.abs(normal(4)) + 1], axis=-1)
    scale, zeros = np.abs(normal(3, 3, 4)) + 1, bytes_("uint8", 3, 3, 4)
    stored = check_definition("quantize", [x, scale, zeros], axis=1, block=3)[0]
    check_definition("dequantize", [stored, scale, zeros], axis=1, block=3)
    half = x.astype("f2")
    check_definition("quantize", [half, np.float16(0.7)], symbolic=False)
    check_definition("quantize", [half, np.float16(0.7)], precision="f32", symbolic=False)
    check_definition("dequantize", [stored, np.float16(0.7)], symbolic=False)
    check_definition("dequantize", [stored, np.float32(0.7)], dtype="f16", symbolic=False)
    integers = RNG.integers(-1000, 1000, (9,)).astype("i4")
    check_definition("quantize", [integers, np.float32(4)], dtype="i8", symbolic=False)
    check_definition("dequantize", [integers, np.float32(0.5)], symbolic=False)


def test_dynamic() -> None:
    for x in (normal(3, 4), np.abs(normal(5)) + 1, -np.abs(normal(5)) - 1, np.zeros(3, "f4")):
        check_definition("dynamic_quantize", [x])


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_matmul_integer(types: tuple[str, str]) -> None:
    a, b = bytes_(types[0], 3, 9), bytes_(types[1], 9, 5)
    zero_a, zero_b = np.array(7, types[0]), np.array(3, types[1])
    check_definition("matmul_integer", [a, b])
    check_definition("matmul_integer", [a, b, zero_a])
    check_definition("matmul_integer", [a, b, zero_a, zero_b])
    check_definition("matmul_integer", [a, b, bytes_(types[0], 3), bytes_(types[1], 5)])
    batch = [bytes_(types[0], 2, 3, 9), bytes_(types[1], 2, 9, 5)]
    zeros = [bytes_(types[0], 2, 3, 1), bytes_(types[1], 2, 1, 5)]
    check_definition("matmul_integer", [*batch, *zeros], symbolic=False)
    check("matmul_integer", [a, b, zero_a, zero_b], symbolic=False)


_ZEROS = [np.uint8(0), np.uint8(90), np.array([90, 0, 80, 100, 90], "uint8")]


@pytest.mark.parametrize("zero", _ZEROS)
def test_constant_factors_take_in_their_zero_points(zero: np.ndarray) -> None:
    """Those of the other factor alone cost sums over all of it."""
    factors = np.minimum(bytes_("uint8", 9, 5), 127)
    b = Builder("main")
    x, x_zero = b.input("x", "uint8", ("n", 9)), b.input("z", "uint8", ())
    b.output(b.matmul_integer(x, factors, x_zero, zero))
    image = b.input("image", "uint8", (1, 9, "l"))
    weights = factors.T.reshape(5, 9, 1).copy()
    b.output(b.conv_integer(image, weights, np.uint8(0), zero, pads=[1, 1]))
    module = b.build()
    (product, conv) = (c for c in _calls(passes.algebra(module)) if c.op.name == "matmul_integer")
    assert product.args[3] is None and product.args[2] is not None
    assert conv.args[2] is None and conv.args[3] is None
    arrays = [bytes_("uint8", 4, 9), np.uint8(7), bytes_("uint8", 1, 9, 6)]
    for got, want in zip(tw.compile(module).run(arrays), evaluate(module, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


def test_zero_points_that_leave_no_bytes_stay() -> None:
    b = Builder("main")
    factors = np.array([[0, 255], [3, 4]], "uint8")
    b.output(b.matmul_integer(b.input("x", "uint8", ("n", 2)), factors, None, np.uint8(100)))
    (call,) = _calls(passes.algebra(b.build()))
    assert call.args[3] is not None


def _calls(module: Module) -> list[Call]:
    return [b.expr for b in module.main.body if isinstance(b.expr, Call)]


def free_rows(columns: Any = 40, depth: Any = 70) -> Module:
    """Computed factors of which the first has any number of rows."""
    b = Builder("main")
    x, x_zero = b.input("x", "uint8", ("n", 2, "rows", depth)), b.input("p", "uint8", ())
    y, y_zero = b.input("y", "int8", ("n", 2, depth, columns)), b.input("q", "int8", ())
    b.output(b.matmul_integer(x, y, x_zero, y_zero))
    return b.build()


@pytest.mark.parametrize("sizes", [(40, 70), ("columns", 70), (40, "depth"), ("columns", "depth")])
@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-v1", "cascadelake"])
def test_any_number_of_rows_by_instructions(cpu: str, sizes: tuple[Any, Any]) -> None:
    model = tw.compile(free_rows(*sizes), target=f"llvm -mcpu={cpu} -num-cores=2")
    assert isinstance(model, tw.Model)
    (name,) = model.kernels
    assert "tensor_intrin" in kernel_levels(model.ir(name), model.target).scheduled


@pytest.mark.parametrize("free", [False, True])
def test_any_number_of_rows(free: bool) -> None:
    module = free_rows("columns", "depth") if free else free_rows()
    model = tw.compile(module)
    sizes = [(1, 1), (5, 3), (33, 17), (16, 64)] if free else [(40, 70)]
    for rows, (columns, depth) in itertools.product([0, 1, 3, 4, 9, 33], sizes):
        y, q = bytes_("int8", 2, 2, depth, columns), np.int8(-5)
        arrays = [bytes_("uint8", 2, 2, rows, depth), np.uint8(7), y, q]
        for got, want in zip(model.run(arrays), evaluate(module, arrays), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rows", [33, "rows"])
def test_sums_of_rows_beside_a_product_are_vectors(rows: Any) -> None:
    """A zero point that the other factor cannot take in costs sums of all rows."""
    factors = bytes_("uint8", 64, 48)
    factors[0, :2] = 0, 255
    b = Builder("main")
    b.output(b.matmul_integer(b.input("x", "uint8", (rows, 64)), factors, None, np.uint8(100)))
    module = b.build()
    model = tw.compile(module)
    assert isinstance(model, tw.Model)
    (name,) = model.kernels
    scheduled = kernel_levels(model.ir(name), model.target).scheduled
    assert "a_sums_rf" in scheduled
    x = bytes_("uint8", 33, 64)
    np.testing.assert_array_equal(model.run([x])[0], evaluate(module, [x])[0])


def test_matmul_integer_by_instructions() -> None:
    """Large enough for dot-product instructions, where the machine has them."""
    a, b = bytes_("uint8", 33, 70), bytes_("int8", 70, 40)
    check("matmul_integer", [a, b, np.uint8(7), np.int8(3)], symbolic=False)


def test_qlinear_matmul() -> None:
    scales = [np.array(s, "f4") for s in (0.02, 0.01, 0.05)]
    a, b = bytes_("uint8", 3, 9), bytes_("int8", 9, 5)
    rest = [scales[2], np.uint8(120)]
    check("qlinear_matmul", [a, scales[0], np.uint8(128), b, scales[1], np.int8(0), *rest],
          symbolic=False)  # fmt: skip
    columns = np.linspace(0.01, 0.05, 5).astype("f4")
    inputs = [a, scales[0], np.uint8(128), b, columns, bytes_("int8", 5), *rest]
    check_definition("qlinear_matmul", inputs)


def test_integer_convolutions() -> None:
    x, w = bytes_("uint8", 1, 4, 6, 7), bytes_("int8", 6, 4, 3, 3)
    window: dict[str, Any] = {"pads": [1, 0, 1, 2], "strides": [2, 1]}
    check_definition("conv_integer", [x, w], **window)
    check_definition("conv_integer", [x, w, np.uint8(9)], **window)
    check_definition("conv_integer", [x, w, np.uint8(9), bytes_("int8", 6)], **window)
    grouped = [x, bytes_("int8", 6, 2, 3, 3), np.full(1, 5, "u1")]
    check_definition("conv_integer", grouped, groups=2, symbolic=False)
    scale, scales = np.array(0.02, "f4"), np.linspace(0.01, 0.05, 6).astype("f4")
    bias = RNG.integers(-900, 900, 6).astype("i4")
    zeros = np.zeros(6, "i1")
    inputs = [x, scale, np.uint8(128), w, scales, zeros, np.array(0.5, "f4"), np.uint8(3), bias]
    check("qlinear_conv", inputs, symbolic=False, **window)
    check_definition("qlinear_conv", inputs[:-1], **window)
    inputs[5] = None
    check_definition("qlinear_conv", inputs, **window)


def test_patches() -> None:
    window: dict[str, Any] = {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2)}
    x = bytes_("uint8", 2, 6, 7, 3)
    check_definition("patches", [x, np.uint8(7)], kernel=(3, 2), **window)
    check_definition("patches", [normal(1, 9, 4)], kernel=(5,), strides=(2,))
    check("patches", [x], kernel=(1, 1), strides=(2, 3), pads=(0, 1, 1, 0))


@pytest.mark.parametrize(
    ("types", "plain"), [("uint8 int8", 0), ("uint8 uint8", 1), ("int8 int8", 2)]
)
def test_convolutions_of_bytes_are_products(types: str, plain: int) -> None:
    """Case `plain` is computed as it is written as well."""
    first, second = types.split()
    cases = [
        ((2, 5, 7), 3, (2, 2), (1, 1, 0, 2)),
        ((1, 16, 4), 1, (1, 1), ()),
        ((0, 3, 5), 3, (), ()),
    ]
    for number, ((images, channels, size), kernel, strides, pads) in enumerate(cases):
        b = Builder()
        x = b.input("x", first, ("n", channels, size, "w"))
        weight = b.constant(bytes_(second, 6, channels, kernel, kernel))
        zeros = b.constant(np.array(9, first)), b.constant(bytes_(second, 6))
        b.output(b.conv_integer(x, weight, *zeros, strides=strides, pads=pads))
        module = b.build()
        image = bytes_(first, images, channels, size, 6)
        want = evaluate(module, [image])
        if number == plain:
            with tw.PassContext(opt_level=0):
                np.testing.assert_array_equal(tw.build(module)(image), want[0])
        with tw.PassContext(opt_level=3):
            model = tw.build(module)
        np.testing.assert_array_equal(model(image), want[0])
        assert any("matmul_integer" in name for name in model.kernels)


def test_convolutions_of_bytes_in_groups() -> None:
    b = Builder()
    x = b.input("x", "uint8", (2, 6, 5, "w"))
    weight, zeros = b.constant(bytes_("uint8", 6, 1, 3, 3)), b.constant(bytes_("uint8", 6))
    zero = b.constant(np.array([9], "u1"))
    b.output(b.conv_integer(x, weight, zero, zeros, groups=6, pads=(1, 1, 1, 1)))
    image = bytes_("uint8", 2, 6, 5, 7)
    np.testing.assert_array_equal(tw.build(b.build())(image), evaluate(b.build(), [image])[0])


@pytest.mark.parametrize("groups", [1, 3])
def test_quantized_convolutions_in_steps(groups: int) -> None:
    b = Builder()
    x = b.input("x", "uint8", ("n", 6, 5, "w"))
    scales = b.constant(np.linspace(0.01, 0.05, 9).astype("f4"))
    weight, bias = bytes_("int8", 9, 6 // groups, 3, 3), RNG.integers(-900, 900, 9).astype("i4")
    single = [b.constant(np.array(v, "f4")) for v in (0.02, 0.5)]
    y = b.qlinear_conv(
        *(x, single[0], b.constant(np.uint8(128)), b.constant(weight), scales, None),
        *(single[1], b.constant(np.array([3], "u1")), b.constant(bias)),
        strides=(1, 2),
        pads=(1, 1, 0, 0),
        groups=groups,
    )
    b.output(y)
    image = bytes_("uint8", 2, 6, 5, 7)
    want = evaluate(b.build(), [image])[0]
    np.testing.assert_array_equal(tw.build(b.build())(image), want)


def test_what_is_refused() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 8))
    with pytest.raises(UserError, match="is given a zero point of u8"):
        b.quantize(x, np.float32(1), np.uint8(0), dtype="i8")
    with pytest.raises(UserError, match="what axis 1 needs differ: 3 and 8"):
        b.quantize(x, np.ones(3, "f4"))
    with pytest.raises(UserError, match="blocks of 4 need a scale of 2 dimensions"):
        b.quantize(x, np.ones(2, "f4"), block=4)
    with pytest.raises(UserError, match="takes integer tensors"):
        b.matmul_integer(x, x)


@pytest.mark.parametrize("cores", [1, 2])
def test_extremes_of_everything_are_found_by_vectors(cores: int) -> None:
    b = Builder("main")
    x = b.input("x", "f32", ("n", "m", 40))
    b.output(*b.emit_all("dynamic_quantize", [x], {}))
    module = b.build()
    model = tw.compile(module, target=f"llvm -num-cores={cores}", threads=cores)
    assert isinstance(model, tw.Model)
    (name,) = model.kernels
    scheduled = kernel_levels(model.ir(name), model.target).scheduled
    assert "refused" not in scheduled and "greatest_rf" in scheduled
    for shape in ((1, 1, 40), (3, 5, 40), (17, 33, 40)):
        array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for got, want in zip(model.run([array]), evaluate(module, [array]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
    array[2, 3, 4] = np.nan
    assert np.isnan(model.run([array])[1])
