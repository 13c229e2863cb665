"""What compiled functions refuse to be called with, each by its message."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.ir import Buffer, For, Function, Var, parse_function
from tilewright.ir.stmt import Store
from tilewright.support.errors import UserError

TEXT = """
def scale(A: f32[n, 4], B: f32[4 * n], I: i32[n], s: f32, k: i8):
    for i in range(n):
        for j in vectorized(4):
            B[i * 4 + j] = A[i, j] * s + f32(I[i]) + f32(k)
"""


@pytest.fixture(scope="module")
def scale() -> tw.Module:
    return tw.build(tw.Schedule(parse_function(TEXT)))


def arguments(n: int = 3) -> dict[str, Any]:
    return {
        "A": np.ones((n, 4), np.float32),
        "B": np.zeros(4 * n, np.float32),
        "I": np.zeros(n, np.int32),
        "s": 2.0,
        "k": 1,
    }


def refuses(module: tw.Module, message: str, **changes: Any) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        module(*(arguments() | changes).values())


def test_good_arguments(scale: tw.Module) -> None:
    for n in (0, 1, 3):
        args = arguments(n)
        scale(*args.values())
        np.testing.assert_array_equal(args["B"], np.full(4 * n, 3.0))


def test_number_of_arguments(scale: tw.Module) -> None:
    with pytest.raises(UserError, match=r"scale takes 5 arguments \(A, B, I, s, k\), not 2"):
        scale(1, 2)


def test_no_array(scale: tw.Module) -> None:
    refuses(scale, "scale: argument A must be float32[n, 4]: got list", A=[[1.0] * 4] * 3)
    refuses(scale, "pass a NumPy array", A=None)


def test_element_type(scale: tw.Module) -> None:
    refuses(scale, "argument A must be float32[n, 4]: got float64", A=np.ones((3, 4)))
    refuses(scale, "convert it: .astype('int32')", I=np.zeros(3, np.int64))


def test_numbers_of_numpy_are_arrays_to_be_read() -> None:
    text = "def double(A: f32[()], B: f32[()]):\n    B[()] = A[()] * 2.0\n"
    double, out = tw.build(tw.Schedule(parse_function(text))), np.zeros((), np.float32)
    double(np.float32(3), out)
    assert out == 6
    with pytest.raises(UserError, match=r"argument B must be .*: the array is read-only"):
        double(out, np.float32(3))


def test_dimensions(scale: tw.Module) -> None:
    ones = np.ones((3, 4, 1), np.float32)
    refuses(scale, "argument A must be float32[n, 4]: got 3 dimensions: [3, 4, 1]", A=ones)


def test_shape(scale: tw.Module) -> None:
    refuses(scale, "got the shape [3, 5] with n = 3", A=np.ones((3, 5), np.float32))


def test_a_symbolic_dimension_has_one_value(scale: tw.Module) -> None:
    refuses(scale, "argument B must be float32[(4 * n)]: got the shape [16] with n = 3",
            B=np.zeros(16, np.float32))  # fmt: skip
    refuses(scale, "argument I must be int32[n]: got the shape [5] with n = 3",
            I=np.zeros(5, np.int32))  # fmt: skip


def test_gaps(scale: tw.Module) -> None:
    refuses(scale, "its strides (32, 4) have gaps\n  remedy: pass np.ascontiguousarray(A)",
            A=np.ones((3, 8), np.float32)[:, :4])  # fmt: skip
    refuses(scale, "have gaps\n  remedy: pass a contiguous array to be written to",
            B=np.zeros(24, np.float32)[::2])  # fmt: skip
    refuses(scale, "have gaps", A=np.asfortranarray(np.ones((3, 4), np.float32)))


def test_outputs_are_writable(scale: tw.Module) -> None:
    fixed = np.zeros(12, np.float32)
    fixed.flags.writeable = False
    refuses(scale, "argument B must be float32[(4 * n)]: the array is read-only", B=fixed)
    inputs = np.ones((3, 4), np.float32)
    inputs.flags.writeable = False
    scale(*(arguments() | {"A": inputs}).values())


def test_alignment(scale: tw.Module) -> None:
    memory = np.zeros(13 * 4, np.uint8)
    crooked = memory[1:49].view(np.float32)
    refuses(scale, "its data is not aligned to 4 bytes\n  remedy: pass a copy", B=crooked)


def test_alignment_that_a_buffer_asks_for() -> None:
    text = TEXT.replace("B: f32[4 * n]", "B: f32[4 * n, align(64)]")
    module = tw.build(tw.Schedule(parse_function(text)))
    memory = np.zeros(64, np.float32)
    start = -memory.ctypes.data % 64 // 4
    module(*(arguments() | {"B": memory[start : start + 12]}).values())
    refuses(module, "not aligned to 64 bytes", B=memory[start + 1 : start + 13])


def test_outputs_overlap_nothing(scale: tw.Module) -> None:
    memory = np.zeros(20, np.float32)
    refuses(scale, "scale: B shares memory with A: B is written while A is in use",
            A=memory[8:].reshape(3, 4), B=memory[:12])  # fmt: skip
    scale(*(arguments(2) | {"A": memory[8:16].reshape(2, 4), "B": memory[:8]}).values())


def test_inputs_may_be_one_array() -> None:
    text = """
def f(A: f32[n], B: f32[n], C: f32[n]):
    for i in range(n):
        C[i] = A[i] + B[i]
"""
    a, c = np.ones(5, np.float32), np.zeros(5, np.float32)
    tw.build(tw.Schedule(parse_function(text)))(a, a, c)
    np.testing.assert_array_equal(c, 2.0)


def test_scalars(scale: tw.Module) -> None:
    refuses(scale, "argument k must be int8: got 128, which it cannot hold", k=128)
    refuses(scale, "argument k must be int8: got 1.5", k=1.5)
    refuses(scale, "argument s must be float32: got 'two'", s="two")
    for s, k in ((np.float32(2), np.int64(1)), (2, np.int8(1)), (float("nan"), -128)):
        args = arguments() | {"s": s, "k": k}
        scale(*args.values())
        np.testing.assert_array_equal(args["B"], np.float32(s) + np.float32(k))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "int4"])
def test_small_formats_keep_their_names(name: str) -> None:
    text = f"""
def f(A: {name}[n], B: {name}[n]):
    for i in range(n):
        B[i] = A[i]
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    assert f"A: {name}[n]" in repr(module)
    a = np.arange(3).astype(tw.DType.of(name).numpy)
    b = np.zeros_like(a)
    module(a, b)
    assert b.tobytes() == a.tobytes()
    with pytest.raises(UserError, match=f"must be {name}\\[n\\]: got uint"):
        module(a.view(f"u{a.itemsize}"), b)


def test_dimensions_of_one_name() -> None:
    """Names are hints: two dimensions called n are two dimensions."""
    n, m, i = Var("n"), Var("n"), Var("i")
    a, b = Buffer("A", "float32", (n,)), Buffer("B", "float32", (m,))
    f = Function("f", (a, b), For(i, m, "serial", Store(b, (i,), a[i % n])))
    x, y = np.arange(3, dtype=np.float32), np.zeros(7, np.float32)
    tw.build(tw.Schedule(f))(x, y)
    np.testing.assert_array_equal(y, [0, 1, 2, 0, 1, 2, 0])


def test_a_dimension_that_nothing_tells() -> None:
    text = """
def f(A: f32[n // 2]):
    for i in range(n // 2):
        A[i] = 0.0
"""
    module = tw.build(tw.Schedule(parse_function(text)))
    with pytest.raises(UserError, match=r"argument A must be float32\[\(n // 2\)\]"):
        module(np.zeros(3, np.float32))


class Foreign:
    """An array of another library; `refusal` is what its export raises."""

    def __init__(self, array: np.ndarray[Any, Any], refusal: Exception | None = None) -> None:
        self.array, self.refusal = array, refusal

    def __dlpack__(self, **options: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack(scale: tw.Module) -> None:
    args = arguments()
    scale(*(args | {"A": Foreign(args["A"]), "B": Foreign(args["B"])}).values())
    np.testing.assert_array_equal(args["B"], 3.0)
    refuses(scale, "cannot take a Foreign through DLPack: on a far device",
            A=Foreign(args["A"], BufferError("on a far device")))  # fmt: skip


def test_torch(scale: tw.Module) -> None:
    torch = pytest.importorskip("torch")
    b = torch.zeros(12)
    scale(*(arguments() | {"A": torch.ones(3, 4), "B": b}).values())
    assert bool((b == 3.0).all())
    refuses(scale, "through DLPack", A=torch.ones(3, 4, requires_grad=True))


def test_arrays_of_extension_types_have_their_own_type(scale: tw.Module) -> None:
    refuses(scale, "got bfloat16", A=np.ones((3, 4), ml_dtypes.bfloat16))
