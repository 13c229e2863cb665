"""Intrinsics: the functions that a `Call` can name.

Mathematical ones are pure and are expanded into arithmetic before code generation (`lower.math`)
or map to one instruction. LLVM's own (`llvm.…`) and C functions (`extern.…`) are declared by
whoever uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.expr import Call, Const, Expr, Load, as_expr, match_types
from tilewright.support.dtype import DType, bool_, float32, int8, int32, int64, uint64
from tilewright.support.errors import UserError, nearest

TypeRule = Callable[[tuple[DType, ...]], DType]


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function that expressions can call; `accepts` names the kinds of its operands."""

    name: str
    arity: int | None
    accepts: str
    result: TypeRule
    pure: bool = True
    doc: str = ""
    #: Its function on arrays whose last axis is that of lanes, for the evaluator.
    value: Callable[..., Any] | None = None
    #: The CPU features it needs, by LLVM's names: each entry is a set that is sufficient.
    needs: tuple[str, ...] = ()


INTRINSICS: dict[str, Intrinsic] = {}


def declare(
    name: str,
    arity: int | None,
    accepts: str,
    result: TypeRule,
    *,
    pure: bool = True,
    doc: str = "",
    value: Callable[..., Any] | None = None,
    needs: tuple[str, ...] = (),
) -> Intrinsic:
    """Declare an intrinsic; one that exists keeps its value unless it gets another."""
    if value is None and name in INTRINSICS:
        value = INTRINSICS[name].value
    intrinsic = INTRINSICS[name] = Intrinsic(name, arity, accepts, result, pure, doc, value, needs)
    return intrinsic


#: `kernel.NAME(…)`: a loop function of the same program; operands of type uint64 are addresses,
#: the last of which is that of its workspace. If it fails, the caller fails.
_KERNEL = Intrinsic("kernel", None, "any", lambda _: int32, False, "a loop function")


#: `launch.NAME(x, y, z, …)`: a kernel on a device, with x, y and z blocks of threads per axis.
_LAUNCH = Intrinsic("launch", None, "any", lambda _: int32, False, "a kernel on a device")


def find_intrinsic(name: str) -> Intrinsic | None:
    """The intrinsic of this name; those of kernels need no declaration."""
    if name.startswith("kernel."):
        return _KERNEL
    return _LAUNCH if name.startswith("launch.") else INTRINSICS.get(name)


def call(name: str, *args: Any) -> Expr:
    """Call an intrinsic; numbers take the type of the first operand that has one."""
    intrinsic = find_intrinsic(name)
    if intrinsic is None:
        raise UserError(f"unknown intrinsic {name!r}", remedy=nearest(name, INTRINSICS))
    if intrinsic.arity is not None and len(args) != intrinsic.arity:
        raise UserError(f"{name} takes {intrinsic.arity} operands, not {len(args)}")
    operands = _operands(intrinsic, args)
    return Call(name, operands, intrinsic.result(tuple(a.dtype for a in operands)))


def is_pure(expr: Expr) -> bool:
    """Whether evaluating the call itself has no effect."""
    if not isinstance(expr, Call):
        return True
    intrinsic = find_intrinsic(expr.name)
    return intrinsic is not None and intrinsic.pure


def _operands(intrinsic: Intrinsic, args: tuple[Any, ...]) -> tuple[Expr, ...]:
    if intrinsic.accepts == "any":
        return tuple(as_expr(a) for a in args)
    typed = next((a for a in args if isinstance(a, Expr) or hasattr(a, "as_expr")), None)
    like = as_expr(typed) if typed is not None else Const(0.0, float32)
    operands = tuple(match_types(intrinsic.name, like, a)[1] for a in args)
    kinds = {"float": ("float",), "integer": ("int", "uint"), "number": ("float", "int", "uint")}
    for operand in operands:
        if operand.dtype.kind not in kinds[intrinsic.accepts]:
            raise UserError(
                f"{intrinsic.name} does not apply to `{operand}`",
                reason=f"it is {operand.dtype}, not {intrinsic.accepts}",
                remedy="convert it with .astype(…)",
            )
        if operand.dtype is not operands[0].dtype:
            raise UserError(
                f"{intrinsic.name} takes operands of one type",
                reason=f"got {operands[0].dtype} and {operand.dtype}",
            )
    return operands


def _same(types: tuple[DType, ...]) -> DType:
    return types[0]


def _truth(types: tuple[DType, ...]) -> DType:
    return bool_.with_lanes(types[0].lanes)


def _interleaved(a: Any, b: Any) -> Any:
    return np.stack([a, b], axis=-1).reshape(*a.shape[:-1], -1)


def _concatenated(a: Any, b: Any) -> Any:
    return np.concatenate([a, b], axis=-1)


def _zipped(half: int) -> Callable[..., Any]:
    """Interleaved lanes of two vectors, from their lower or upper halves."""

    def value(a: Any, b: Any) -> Any:
        lanes = a.shape[-1]
        own = slice(half * lanes // 2, (half + 1) * lanes // 2)
        return _interleaved(a[..., own], b[..., own])

    return value


def _unpacked(half: int) -> Callable[..., Any]:
    """As `_zipped`, in every 16 bytes of the vectors."""

    def value(a: Any, b: Any) -> Any:
        parts = *a.shape[:-1], -1, 16 // a.itemsize
        return _zipped(half)(a.reshape(parts), b.reshape(parts)).reshape(a.shape)

    return value


def _in_all_lanes(a: Any) -> Any:
    return np.all(a, axis=-1)


def _first_lane(a: Any) -> Any:
    return np.argmax(a, axis=-1)


def _one_lane(a: Any, number: Any) -> Any:
    lanes, at = np.broadcast_arrays(a, np.asarray(number)[..., None])
    return np.take_along_axis(lanes, at[..., :1], axis=-1)[..., 0]


#: Expanded to polynomials over the type they are called with. `coarse_exp` is exp within 2**-16,
#: for results that are rounded to 16 bits, `coarse_sigmoid` sigmoid within 2**-12, for bytes.
TRANSCENDENTAL = (
    "exp coarse_exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh erf sigmoid coarse_sigmoid rsqrt"
).split()
for _name in TRANSCENDENTAL:
    declare(_name, 1, "float", _same)
declare("pow", 2, "float", _same)
declare("atan2", 2, "float", _same)
#: One instruction, or close to it, on every target; `round` goes to even.
for _name in ("sqrt", "floor", "ceil", "round", "trunc"):
    declare(_name, 1, "float", _same)
declare("abs", 1, "number", _same)
declare("fma", 3, "float", _same, doc="a * b + c, rounded once where the target can")
declare("copysign", 2, "float", _same)
declare(
    "coarse_reciprocal",
    1,
    "float",
    _same,
    doc="1 / a with at least 14 bits right, for what is neither tiny nor huge",
)
for _name in ("isnan", "isinf", "isfinite", "signbit"):
    declare(_name, 1, "float", _truth)
for _name in ("popcount", "clz", "ctz"):
    declare(_name, 1, "integer", _same)
declare("mulhi", 2, "integer", _same, doc="the upper half of the product of twice the width")
#: Fixed-point arithmetic of signed integers, as in Arm's instructions.
declare(
    "mulhi_doubled",
    2,
    "integer",
    _same,
    doc="the upper half of twice the product, rounded, halves upward; it has room for it",
)
declare(
    "shift_nearest",
    2,
    "integer",
    _same,
    doc="a divided by 2**b, rounded, halves upward; b is from 0 to less than the width",
)
declare(
    "all_lanes",
    1,
    "any",
    lambda _: bool_,
    doc="whether a condition holds in every lane",
    value=_in_all_lanes,
)
declare(
    "first_lane",
    1,
    "any",
    lambda _: int64,
    doc="the number of the first lane where it holds",
    value=_first_lane,
)
declare(
    "lane",
    2,
    "any",
    lambda types: types[0].scalar,
    doc="one element of a vector, by number",
    value=_one_lane,
)
declare(
    "zip_low",
    2,
    "any",
    _same,
    doc="the lower halves of two vectors, interleaved",
    value=_zipped(0),
)
declare(
    "zip_high",
    2,
    "any",
    _same,
    doc="the upper halves of two vectors, interleaved",
    value=_zipped(1),
)
declare(
    "zip",
    2,
    "any",
    lambda types: types[0].with_lanes(2 * types[0].lanes),
    doc="two vectors as one, interleaved",
    value=_interleaved,
)
declare(
    "join",
    2,
    "any",
    lambda types: types[0].with_lanes(2 * types[0].lanes),
    doc="two vectors as one, one after the other",
    value=_concatenated,
)
for _half, _name in enumerate(("low", "high")):
    declare(
        f"unpack_{_name}",
        2,
        "any",
        _same,
        doc=f"zip_{_name} in every 16 bytes for itself",
        value=_unpacked(_half),
    )
declare("address_of", 1, "any", lambda _: uint64, doc="the address of the element that is loaded")
declare("tile_of", 1, "any", lambda _: int8, doc="the matrix register that holds the element")
declare("distance", 2, "any", lambda _: int64, doc="the bytes from one element to another")
declare(
    "keep_order",
    None,
    "any",
    lambda _: int32,
    pure=False,
    doc="the compiler leaves what is read, stored and given here ahead of what comes after",
    value=lambda *_: np.int32(0),
)
declare(
    "barrier",
    0,
    "any",
    lambda _: int32,
    pure=False,
    doc="the threads of a block wait for each other, and then see what each has stored",
    value=lambda: np.int32(0),
)
declare(
    "grid_barrier",
    0,
    "any",
    lambda _: int32,
    pure=False,
    doc="the threads of all blocks wait for each other, and then see what each has stored",
    value=lambda: np.int32(0),
)
#: Asynchronous copies by threads to shared memory.
declare(
    "async_copy",
    4,
    "any",
    lambda _: int32,
    pure=False,
    doc="to shared memory, from global memory, how many bytes, and how many of them are not zero",
)
declare(
    "async_commit",
    0,
    "any",
    lambda _: int32,
    pure=False,
    doc="what each thread has copied since the last time is a group",
)
declare(
    "async_wait",
    1,
    "any",
    lambda _: int32,
    pure=False,
    doc="each thread waits until all but so many of its latest groups have landed",
)
declare("prefetch", 1, "any", lambda _: int32, pure=False, doc="bring an address near")
#: For host programs; heap blocks are numbered, and released when the function ends.
declare("copy_memory", 3, "any", lambda _: int32, pure=False, doc="to, from, how many bytes")
declare("fetch", 3, "any", lambda _: int32, pure=False, doc="to, from a device, how many bytes")
declare("store_number", 3, "any", lambda _: int32, pure=False, doc="to a device, bits, bytes")
declare("heap_take", 2, "any", lambda _: int32, pure=False, doc="let a block have so many bytes")
declare("heap_grow", 2, "any", lambda _: int32, pure=False, doc="the same, keeping what it holds")
declare("heap_release", 1, "any", lambda _: int32, pure=False, doc="give a block back")
declare("heap_swap", 2, "any", lambda _: int32, pure=False, doc="exchange two blocks")
declare("heap_hand_over", 1, "any", lambda _: uint64, pure=False, doc="a block the caller frees")
declare("heap_block", 1, "any", lambda _: uint64, pure=False, doc="the address of a block")
#: Lists of tensors are numbered and released likewise; they are null at first.
declare("list_empty", 1, "any", lambda _: int32, pure=False, doc="let a list have no items")
declare("list_insert", None, "any", lambda _: int32, pure=False, doc="at, bytes, dimensions …")
declare("list_erase", 2, "any", lambda _: int32, pure=False, doc="take the item at a position out")
declare("list_share", 2, "any", lambda _: int32, pure=False, doc="let a list be what another is")
declare("list_adopt", 2, "any", lambda _: int32, pure=False, doc="the same, of a caller's list")
declare("list_swap", 2, "any", lambda _: int32, pure=False, doc="exchange two lists")
declare("list_release", 1, "any", lambda _: int32, pure=False, doc="let a list be null")
declare("list_hand_over", 1, "any", lambda _: uint64, pure=False, doc="a list the caller releases")
declare("list_exists", 1, "any", lambda _: bool_, pure=False, doc="whether a list is not null")
declare("list_length", 1, "any", lambda _: int64, pure=False, doc="how many items it has")
declare("list_item", 2, "any", lambda _: uint64, pure=False, doc="where an item's elements begin")
declare("list_rank", 2, "any", lambda _: int64, pure=False, doc="how many dimensions an item has")
declare("list_extent", 3, "any", lambda _: int64, pure=False, doc="a dimension of an item")
declare("int64_at", 1, "any", lambda _: int64, pure=False, doc="the number at an address")


def reinterpret(a: Any, dtype: object) -> Expr:
    """The bits of `a` reinterpreted as another type of the same width."""
    a, dtype = as_expr(a), DType.of(dtype)
    if a.dtype.bits != dtype.bits:
        raise UserError(
            f"cannot reinterpret `{a}` as {dtype}", reason=f"{a.dtype} has {a.dtype.bits} bits"
        )
    return Call(f"reinterpret_{dtype.scalar.short}", (a,), dtype.with_lanes(a.dtype.lanes))


def regroup(a: Expr, dtype: object) -> Expr:
    """The bits of a vector as lanes of another width; the first lane has the lowest bits."""
    dtype, bits = DType.of(dtype), a.dtype.bits * a.dtype.lanes
    if bits % dtype.bits:
        raise UserError(
            f"cannot regroup `{a}` as lanes of {dtype}", reason=f"{a.dtype} has {bits} bits"
        )
    return Call(f"reinterpret_{dtype.short}", (a,), dtype.with_lanes(bits // dtype.bits))


def address_of(element: Load) -> Expr:
    """The address of a buffer's element, for intrinsics that take pointers."""
    return call("address_of", element)


def _declare_reinterpret(short: str) -> None:
    scalar = DType.of(short)

    def regrouped(types: tuple[DType, ...]) -> DType:
        return scalar.with_lanes(max(1, types[0].bits * types[0].lanes // scalar.bits))

    declare(f"reinterpret_{short}", 1, "any", regrouped)


for _name in "i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64".split():
    _declare_reinterpret(_name)
