"""Complex numbers, as far as final results are real: rotary embeddings, spectra."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.torch.node import Complex, Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


def part(n: Node, name: str) -> Complex:
    """An argument as a complex number; a real one gets imaginary parts of zero."""
    found = n[name]
    if isinstance(found, Complex):
        return found
    dtype = n.dtype
    if isinstance(found, complex):
        return Complex(n.constant(found.real, dtype), n.constant(found.imag, dtype))
    real = n.number(found, dtype)
    return Complex(real, n.full(0, real.shape, dtype))


@converts("view_as_complex", "view_as_complex_copy")
def view_as_complex(n: Node) -> Complex:
    x, b = n.tensor("self"), n.builder
    axis = x.ndim - 1
    parts = [b.slice(x, starts=[k], ends=[k + 1], axes=[axis]) for k in (0, 1)]
    return Complex(*(b.squeeze(p, axes=[axis]) for p in parts))


@converts("view_as_real", "view_as_real_copy")
def view_as_real(n: Node) -> Value:
    x, b = part(n, "self"), n.builder
    axis = x.real.ndim
    return b.concat(*(b.unsqueeze(v, axes=[axis]) for v in (x.real, x.imag)), axis=axis)


@converts("complex")
def complex_(n: Node) -> Complex:
    return Complex(*(n.tensor(name, n.dtype) for name in ("real", "imag")))


@converts("polar")
def polar(n: Node) -> Complex:
    size, angle, b = n.tensor("abs", n.dtype), n.tensor("angle", n.dtype), n.builder
    return Complex(b.mul(size, b.cos(angle)), b.mul(size, b.sin(angle)))


def add(n: Node) -> Complex:
    x, y, b = part(n, "self"), part(n, "other"), n.builder
    op = "add" if n.op.startswith("add") else "sub"
    return Complex(b.emit(op, x.real, y.real), b.emit(op, x.imag, y.imag))


def mul(n: Node) -> Complex:
    x, y, b = part(n, "self"), part(n, "other"), n.builder
    real = b.sub(b.mul(x.real, y.real), b.mul(x.imag, y.imag))
    imag = b.add(b.mul(x.real, y.imag), b.mul(x.imag, y.real))
    return Complex(real, imag)


def absolute(n: Node) -> Value:
    x, b = part(n, "self"), n.builder
    return b.sqrt(b.add(b.mul(x.real, x.real), b.mul(x.imag, x.imag)))


def angle(n: Node) -> Value:
    x = part(n, "self")
    return n.builder.atan2(x.imag, x.real)


def conjugate(n: Node) -> Complex:
    x = part(n, "self")
    return Complex(x.real, n.builder.neg(x.imag))


def converted(n: Node) -> Any:
    """Complex numbers in another type; converted to real ones they lose imaginary parts."""
    x, dtype = part(n, "self"), n.dtype
    if not n.is_complex:
        return n.cast(x.real, dtype)
    return Complex(n.cast(x.real, dtype), n.cast(x.imag, dtype))


def negative(n: Node) -> Complex:
    x, b = part(n, "self"), n.builder
    return Complex(b.neg(x.real), b.neg(x.imag))


@converts("real", "imag")
def one_part(n: Node) -> Any:
    x = part(n, "self")
    return x.real if n.op.startswith("real") else x.imag


@converts("angle")
def angle_of_real(n: Node) -> Value:
    x, b = n.tensor("self", n.dtype), n.builder
    turned = b.where(b.less(x, n.like(0, x)), n.like(3.141592653589793, x), n.like(0, x))
    return b.where(b.isnan(x), x, turned)


#: Operators that apply to both parts in the same way.
BY_PARTS = frozenset(
    """view reshape _unsafe_view view_copy unsqueeze squeeze permute transpose t expand slice select
    clone alias detach contiguous cat index gather index_select unbind split split_with_sizes
    flatten repeat stack flip roll constant_pad_nd where index_put slice_scatter select_scatter sum
    mean full_like zeros_like positive lift_fresh_copy as_strided diagonal""".split()
)
#: Operators with rules for complex numbers.
BY_RULE = {
    "_to_copy": converted,
    "add": add,
    "sub": add,
    "mul": mul,
    "abs": absolute,
    "angle": angle,
    "conj": conjugate,
    "_conj": conjugate,
    "_conj_physical": conjugate,
    "conj_physical": conjugate,
    "neg": negative,
}
