"""Loads and stores: contiguous vectors, strided and scattered lanes, masks."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, TypeGuard

from tilewright.arith import divisor
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions import arm_tables, x86_tables
from tilewright.codegen.llvm.types import (
    LLValue,
    i32,
    lane_numbers,
    llvm,
    memory_type,
    register_type,
)
from tilewright.ir import Broadcast, Buffer, Const, DType, Expr, Load, Ramp, const
from tilewright.support.memory import ALIGNMENT


def emit_load(cx: Context, node: Load, args: list[LLValue]) -> LLValue:
    position, mask = args[0], args[1] if node.mask is not None else None
    (index,) = node.indices
    if not node.dtype.is_vector:
        return _load_scalar(cx, node.buffer, position, mask)
    if _is_contiguous(index):
        return _load_contiguous(cx, node, index, position, mask)
    if _is_strided(cx, node):
        return _load_strided(cx, node, position, mask)
    for tables in (arm_tables, x86_tables):
        if tables.takes(cx.target, node):
            return tables.look_up(cx, node, position)
    return _load_lanes(cx, node, position, mask)


def emit_store(
    cx: Context,
    buffer: Buffer,
    index: Expr,
    position: LLValue,
    value: LLValue,
    mask: LLValue | None,
    *,
    streams: bool = False,
) -> None:
    """Write `value` at `position`, which is the value of `access_start(index)`.

    With `streams`, the store bypasses the caches; its buffer then is aligned to cache lines.
    """
    alias_class = cx.aliases.alias_class(buffer)
    cx.available.forget_written(alias_class, index)
    if not index.dtype.is_vector:
        _guarded(cx, mask, lambda: _store_scalar(cx, buffer, position, value))
    elif _is_contiguous(index):
        _store_contiguous(cx, buffer, index, position, value, mask, streams=streams)
    else:
        _store_lanes(cx, buffer, position, value, mask)
        return
    if mask is None:
        cx.available.add(Load(buffer, (index,)), value, frozenset([alias_class]))


def element_address(cx: Context, buffer: Buffer, position: LLValue) -> LLValue:
    """The address of an element inside the buffer."""
    kind = memory_type(buffer.dtype)
    return cx.builder.gep(cx.address(buffer), [position], inbounds=True, source_etype=kind)


def any_address(cx: Context, buffer: Buffer, position: LLValue) -> LLValue:
    """The address of an element that may be outside the buffer, as for prefetches."""
    kind = memory_type(buffer.dtype)
    return cx.builder.gep(cx.address(buffer), [position], source_etype=kind)


def _known_address(cx: Context, buffer: Buffer, index: Expr, position: LLValue) -> LLValue:
    """The address of the element at `index`, whose value is `position`, computed once."""
    address = cx.known((buffer, index))
    if address is None:
        address = element_address(cx, buffer, position)
        cx.remember((buffer, index), address)
    return address


def access_start(index: Expr) -> Expr:
    """The operand to evaluate for an access: the first index of a contiguous one, else all."""
    return index.base if _is_contiguous(index) else index


def load_start(cx: Context, node: Load) -> Expr:
    """The operand to evaluate for a load, which may also have a small constant stride."""
    (index,) = node.indices
    return index.base if isinstance(index, Ramp) and _is_strided(cx, node) else access_start(index)


def _is_strided(cx: Context, node: Load) -> bool:
    """Whether the lanes have a constant stride of 2 to 4: done by a contiguous load and shuffle."""
    (index,) = node.indices
    if not isinstance(index, Ramp) or not isinstance(index.stride, Const):
        return False
    return 2 <= index.stride.value <= 4 and (node.mask is None or _masks(cx, node.dtype))


def _masks(cx: Context, dtype: DType) -> bool:
    """Whether a masked load is one instruction, not a branch for each lane."""
    needs = "avx2" if dtype.bits in (32, 64) else "avx512bw"
    return cx.target.arch == "x86_64" and not dtype.is_bool and cx.target.has(needs)


def _is_contiguous(index: Expr) -> TypeGuard[Ramp]:
    return isinstance(index, Ramp) and index.stride is const(1)


def known_alignment(buffer: Buffer, index: Expr, known: int = 1) -> int:
    """The alignment of an access in bytes, given that the buffer's is at least `known`."""
    size, most = buffer.dtype.itemsize, min(max(known, buffer.alignment), ALIGNMENT)
    return gcd(divisor(index) * size, most) if most > size else gcd(size, most)


# ---- one element --------------------------------------------------------------------------------


def _load_scalar(cx: Context, buffer: Buffer, position: LLValue, mask: LLValue | None) -> LLValue:
    if mask is None:
        return _load_element(cx, buffer, position)
    before = cx.builder.block
    with cx.builder.if_then(mask):
        loaded = _load_element(cx, buffer, position)
        inside = cx.builder.block
    phi = cx.builder.phi(loaded.type)
    phi.add_incoming(loaded, inside)
    phi.add_incoming(llvm.Constant(loaded.type, None), before)
    return phi


def _load_element(cx: Context, buffer: Buffer, position: LLValue) -> LLValue:
    address = element_address(cx, buffer, position)
    loaded = cx.builder.load(address, typ=memory_type(buffer.dtype))
    loaded.align = buffer.dtype.itemsize
    cx.aliases.mark(loaded, buffer)
    return _from_memory(cx, buffer.dtype, loaded)


def _store_scalar(cx: Context, buffer: Buffer, position: LLValue, value: LLValue) -> None:
    address = element_address(cx, buffer, position)
    stored = cx.builder.store(_to_memory(cx, buffer.dtype, value), address)
    stored.align = buffer.dtype.itemsize
    cx.aliases.mark(stored, buffer)


def _guarded(cx: Context, mask: LLValue | None, emit: Callable[[], None]) -> None:
    if mask is None:
        emit()
        return
    with cx.builder.if_then(mask):
        emit()


# ---- contiguous elements ------------------------------------------------------------------------


def _load_contiguous(
    cx: Context, node: Load, index: Ramp, position: LLValue, mask: LLValue | None
) -> LLValue:
    address = _known_address(cx, node.buffer, index.base, position)
    kind, align = memory_type(node.dtype), known_alignment(node.buffer, index.base)
    if mask is not None and isinstance(node.mask, Broadcast):
        # All lanes or none: if none, load zeros from elsewhere, without a branch.
        wanted = cx.builder.extract_element(mask, llvm.Constant(i32, 0))
        address, mask = cx.builder.select(wanted, address, _zeros(cx, node.dtype)), None
    if mask is None:
        loaded = cx.builder.load(address, typ=kind)
        loaded.align = align
    else:
        zeros = llvm.Constant(kind, None)
        loaded = cx.intrinsic(
            "llvm.masked.load", kind, [address, mask, zeros], [kind, address.type]
        )
    cx.aliases.mark(loaded, node.buffer)
    return _from_memory(cx, node.dtype, loaded)


def _zeros(cx: Context, dtype: DType) -> LLValue:
    """The address of a vector of zeros."""
    kind = llvm.ArrayType(llvm.IntType(8), dtype.itemsize * dtype.lanes)
    name = f"zeros.{kind.count}"
    found = cx.module.globals.get(name)
    if found is None:
        found = llvm.GlobalVariable(cx.module, kind, name)
        found.linkage, found.global_constant, found.align = "internal", True, ALIGNMENT
        found.initializer = llvm.Constant(kind, None)
    return found


def _store_contiguous(
    cx: Context,
    buffer: Buffer,
    index: Ramp,
    position: LLValue,
    value: LLValue,
    mask: LLValue | None,
    *,
    streams: bool,
) -> None:
    address = _known_address(cx, buffer, index.base, position)
    value = _to_memory(cx, buffer.dtype.with_lanes(index.dtype.lanes), value)
    if mask is not None:
        stored = cx.intrinsic(
            "llvm.masked.store",
            llvm.VoidType(),
            [value, address, mask],
            [value.type, address.type],
        )
        cx.aliases.mark(stored, buffer)
        return
    stored = cx.builder.store(value, address)
    stored.align = known_alignment(buffer, index.base, ALIGNMENT if streams else 1)
    # Non-temporal vectors must not cross a cache line.
    if streams and stored.align >= buffer.dtype.itemsize * index.dtype.lanes:
        stored.set_metadata("nontemporal", cx.module.add_metadata([llvm.Constant(i32, 1)]))
    cx.aliases.mark(stored, buffer)


def _load_strided(cx: Context, node: Load, position: LLValue, mask: LLValue | None) -> LLValue:
    """A contiguous load from the first to the last lane, and a shuffle that keeps the lanes."""
    (index,) = node.indices
    assert isinstance(index, Ramp) and isinstance(index.stride, Const)
    step, lanes = int(index.stride.value), node.dtype.lanes
    address = element_address(cx, node.buffer, position)
    kind = memory_type(node.dtype.with_lanes(step * (lanes - 1) + 1))
    if mask is None:
        loaded = cx.builder.load(address, typ=kind)
        loaded.align = node.dtype.itemsize
    else:
        # Elements between the lanes may be outside the buffer.
        wanted = _strided_mask(cx, mask, step)
        zeros = llvm.Constant(kind, None)
        types = [kind, address.type]
        loaded = cx.intrinsic("llvm.masked.load", kind, [address, wanted, zeros], types)
    cx.aliases.mark(loaded, node.buffer)
    kept = _shuffled(cx, loaded, llvm.Undefined, [step * k for k in range(lanes)])
    return _from_memory(cx, node.dtype, kept)


def _strided_mask(cx: Context, mask: LLValue, step: int) -> LLValue:
    """`mask` spread to this stride, with false in between."""
    lanes = mask.type.count
    order = [k // step if k % step == 0 else lanes for k in range(step * (lanes - 1) + 1)]
    return _shuffled(cx, mask, None, order)


def _shuffled(cx: Context, vector: LLValue, other: Any, order: list[int]) -> LLValue:
    """Lanes of `vector`; indices past its end select lanes filled with `other`."""
    filling = llvm.Constant(vector.type, other)
    return cx.builder.shuffle_vector(vector, filling, lane_numbers(tuple(order)))


# ---- gathers and scatters -----------------------------------------------------------------------


def _load_lanes(cx: Context, node: Load, position: LLValue, mask: LLValue | None) -> LLValue:
    kind = register_type(node.dtype)
    result = llvm.Constant(kind, llvm.Undefined)
    for lane in range(node.dtype.lanes):
        at, on = _lane(cx, position, lane), _lane(cx, mask, lane)
        element = _load_scalar(cx, node.buffer, at, on)
        result = cx.builder.insert_element(result, element, llvm.Constant(i32, lane))
    return result


def _store_lanes(
    cx: Context, buffer: Buffer, position: LLValue, value: LLValue, mask: LLValue | None
) -> None:
    for lane in range(position.type.count):
        at, on, element = (_lane(cx, v, lane) for v in (position, mask, value))
        _guarded(cx, on, lambda at=at, element=element: _store_scalar(cx, buffer, at, element))


def _lane(cx: Context, vector: LLValue | None, lane: int) -> Any:
    if vector is None:
        return None
    return cx.builder.extract_element(vector, llvm.Constant(i32, lane))


def _from_memory(cx: Context, dtype: DType, value: LLValue) -> LLValue:
    if not dtype.is_bool:
        return value
    return cx.builder.icmp_unsigned("!=", value, llvm.Constant(value.type, None))


def _to_memory(cx: Context, dtype: DType, value: LLValue) -> LLValue:
    return cx.builder.zext(value, memory_type(dtype)) if dtype.is_bool else value
