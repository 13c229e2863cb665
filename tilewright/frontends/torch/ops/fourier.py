"""Fourier transforms, whose complex numbers must finally become real ones."""

from __future__ import annotations

import math

from tilewright.frontends.torch.node import Complex, Node, known_size
from tilewright.frontends.torch.ops.complex import part
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value, product


def transformed(n: Node, x: Complex, axis: int, inverse: bool) -> Complex:
    """The transform along an axis; the inverse one is divided by its length."""
    b, rank = n.builder, x.real.ndim
    order = [k for k in range(rank) if k != axis]
    pairs = [
        b.unsqueeze(b.transpose(v, axes=[*order, axis]), axes=[rank]) for v in (x.real, x.imag)
    ]
    made = b.dft(b.concat(*pairs, axis=rank), inverse=inverse)
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    parts = [b.slice(made, starts=[k], ends=[k + 1], axes=[rank]) for k in (0, 1)]
    return Complex(*(b.transpose(b.squeeze(p, axes=[rank]), axes=back) for p in parts))


def scaled(n: Node, x: Value, lengths: list[int], inverse: bool) -> Value:
    """A part of a transform by torch's rule: 0 sums, 1 divides by the root, 2 by the length."""
    count = math.prod(lengths)
    divided = count if inverse else 1
    wanted = {0: 1.0, 1: math.sqrt(count), 2: float(count)}[int(n["normalization"])]
    return n.builder.mul(x, n.like(divided / wanted, x))


def _lengths(x: Value, axes: list[int]) -> list[int]:
    return [known_size(product([x.shape[a]])) for a in axes]


@converts("_fft_r2c")
def real_to_complex(n: Node) -> Complex:
    b, x = n.builder, part(n, "self")
    axes = n.axes("dim")
    lengths = _lengths(x.real, axes)
    for axis in axes:
        x = transformed(n, x, axis, False)
    if n["onesided"]:
        last = axes[-1]
        end = lengths[-1] // 2 + 1
        x = Complex(*(b.slice(v, starts=[0], ends=[end], axes=[last]) for v in (x.real, x.imag)))
    return Complex(*(scaled(n, v, lengths, False) for v in (x.real, x.imag)))


@converts("_fft_c2c")
def complex_to_complex(n: Node) -> Complex:
    x, axes, inverse = part(n, "self"), n.axes("dim"), not n["forward"]
    lengths = _lengths(x.real, axes)
    for axis in axes:
        x = transformed(n, x, axis, inverse)
    return Complex(*(scaled(n, v, lengths, inverse) for v in (x.real, x.imag)))


@converts("_fft_c2r")
def complex_to_real(n: Node) -> Value:
    """The other half of the spectrum is the conjugate of the first, reversed."""
    b, x = n.builder, part(n, "self")
    axes, size = n.axes("dim"), int(n["last_dim_size"])
    for axis in axes[:-1]:
        x = transformed(n, x, axis, True)
    last, half = axes[-1], size // 2 + 1
    first = [b.slice(v, starts=[0], ends=[half], axes=[last]) for v in (x.real, x.imag)]
    rest = [
        b.flip(b.slice(v, starts=[1], ends=[size - half + 1], axes=[last]), axes=[last])
        for v in first
    ]
    if size > half:
        first = [
            b.concat(first[0], rest[0], axis=last),
            b.concat(first[1], b.neg(rest[1]), axis=last),
        ]
    lengths = [*_lengths(x.real, axes[:-1]), size]
    made = transformed(n, Complex(*first), last, True).real
    return scaled(n, made, lengths, True)
