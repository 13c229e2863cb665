"""Discrete Fourier transforms of complex numbers, stored as pairs in the last dimension.

Lengths are factored (Cooley and Tukey); a prime factor is a product with a matrix.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.ir import Expr
from tilewright.support.errors import UserError

#: Up to this length a product with the whole matrix is cheaper than two smaller ones.
_DIRECT: Final = 128
#: For a length without factors, a matrix of more rows than this is refused.
_GREATEST: Final = 8192


@op
def dft(x: Value, *, inverse: bool = False) -> Type:
    """The transform along the last dimension but one; the last is (real, imaginary)."""
    require_kind("float", x)
    if x.ndim < 2 or known_dim(x.shape[-1]) != 2:
        raise UserError(f"{x} holds no complex numbers", reason="the last dimension must be 2")
    return x.type


@dft.reference
def dft_reference(x: Array, *, inverse: bool) -> Array:
    wide = x.astype(np.float64)
    numbers = wide[..., 0] + 1j * wide[..., 1]
    if not numbers.size:
        return x.copy()
    found = np.fft.ifft(numbers) if inverse else np.fft.fft(numbers)
    return np.stack([found.real, found.imag], -1).astype(x.dtype)


@dft.decompose
def dft_decompose(b: Any, x: Value, *, inverse: bool) -> Value:
    size = x.shape[-2]
    number = known_dim(size)
    result = _transform(b, x, -1.0 if inverse else 1.0, size)
    if not inverse:
        return result
    if number is not None:
        return b.mul(result, b.constant(np.asarray(1 / max(number, 1)), x.dtype))
    count = b.cast(b.shape_of(x, start=x.ndim - 2, end=x.ndim - 1), dtype=x.dtype)
    return b.div(result, count)


def _transform(b: Any, x: Value, sign: float, size: Expr) -> Value:
    number = known_dim(size)
    if number is None:
        return _product(b, x, _matrix_at_run_time(b, x, sign, size), size)
    factor = _factor(number)
    if number <= _DIRECT or factor == 1:
        return _product(b, x, b.constant(_matrix(number, sign), x.dtype), number)
    return _in_two_steps(b, x, sign, number // factor, factor)


def _factor(number: int) -> int:
    """The greatest factor up to the square root."""
    return next((f for f in range(math.isqrt(number), 1, -1) if number % f == 0), 1)


def _product(b: Any, x: Value, matrix: Value, size: Any) -> Value:
    outer = x.shape[:-2]
    flat = b.reshape(x, shape=[*outer, size * 2])
    return b.reshape(b.matmul(flat, matrix), shape=[*outer, size, 2])


def _matrix(number: int, sign: float) -> Array:
    """The matrix that transforms n pairs."""
    if number > _GREATEST:
        raise UserError(
            f"a transform of {number} elements",
            reason=f"lengths over {_GREATEST} must have factors",
            remedy="pad the signal",
        )
    places = np.arange(number)
    angles = sign * 2 * np.pi * (np.outer(places, places) % max(number, 1)) / max(number, 1)
    cos, sin = np.cos(angles), np.sin(angles)
    blocks = np.array([[cos, -sin], [sin, cos]])  # input part, output part, n, k
    return blocks.transpose(2, 0, 3, 1).reshape(2 * number, 2 * number)


def _matrix_at_run_time(b: Any, x: Value, sign: float, size: Expr) -> Value:
    places = b.ramp(b.constant(0, "i64"), b.constant(1, "i64"), size=size)
    count = b.shape_of(x, start=x.ndim - 2, end=x.ndim - 1)
    # The sine of π must be zero, which no float32 angle gives; and there are few different angles.
    step = b.div(b.constant(np.asarray(sign * 2 * np.pi), "f64"), b.cast(count, dtype="f64"))
    angles = b.mul(b.cast(places, dtype="f64"), step)
    products = b.mul(b.unsqueeze(places, axes=[1]), b.unsqueeze(places, axes=[0]))
    steps = b.mod(products, count)
    cos, sin = (
        b.gather(b.cast(part, dtype=x.dtype), steps, axis=0)
        for part in (b.cos(angles), b.sin(angles))
    )
    rows = [[cos, b.neg(sin)], [sin, cos]]
    pairs = [b.concat(*(b.unsqueeze(p, axes=[2]) for p in row), axis=2) for row in rows]
    stacked = b.concat(*(b.unsqueeze(p, axes=[1]) for p in pairs), axis=1)
    return b.reshape(stacked, shape=[size * 2, size * 2])


def _in_two_steps(b: Any, x: Value, sign: float, p: int, q: int) -> Value:
    """Element q·n1 + n2 goes to k1 + p·k2: transforms of p, then twiddles, then transforms of q."""
    outer = x.shape[:-2]
    rows = _swapped(b, b.reshape(x, shape=[*outer, p, q, 2]))
    inner = _twiddled(b, _transform(b, rows, sign, rows.shape[-2]), sign, p, q)
    columns = _swapped(b, inner)
    result = _swapped(b, _transform(b, columns, sign, columns.shape[-2]))
    return b.reshape(result, shape=[*outer, p * q, 2])


def _twiddled(b: Any, x: Value, sign: float, p: int, q: int) -> Value:
    angles = -sign * 2 * np.pi * np.outer(np.arange(q), np.arange(p)) / (p * q)
    cos, sin = np.cos(angles), np.sin(angles)
    kept = b.mul(x, b.constant(np.stack([cos, cos], -1), x.dtype))
    crossed = b.mul(b.flip(x, axes=[-1]), b.constant(np.stack([-sin, sin], -1), x.dtype))
    return b.add(kept, crossed)


def _swapped(b: Any, x: Value) -> Value:
    """The last two dimensions before the pairs, transposed."""
    last = x.ndim
    return b.transpose(x, axes=[*range(last - 3), last - 2, last - 3, last - 1])
