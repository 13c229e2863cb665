"""Loads and stores: contiguous vectors, strided and scattered lanes, masks."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, Final, TypeGuard

from tilewright.arith import divisor
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.types import LLValue, i32, llvm, memory_type, register_type
from tilewright.ir import Broadcast, Buffer, Const, DType, Expr, Load, Ramp, const

#: What all our own memory divides by: a line of the caches.
ALIGNMENT_LIMIT: Final = 64


def emit_load(cx: Context, node: Load, args: list[LLValue]) -> LLValue:
    position, mask = args[0], args[1] if node.mask is not None else None
    (index,) = node.indices
    if not node.dtype.is_vector:
        return _load_scalar(cx, node.buffer, position, mask)
    if _is_contiguous(index):
        return _load_contiguous(cx, node, index, position, mask)
    if _is_spread(cx, node):
        return _load_spread(cx, node, position, mask)
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

    What `streams` bypasses the caches, and its buffer starts with a line of them.
    """
    area = cx.aliases.area(buffer)
    cx.held.forget_written(area, index)
    if not index.dtype.is_vector:
        _guarded(cx, mask, lambda: _store_scalar(cx, buffer, position, value))
    elif _is_contiguous(index):
        _store_contiguous(cx, buffer, index, position, value, mask, streams=streams)
    else:
        _store_lanes(cx, buffer, position, value, mask)
        return
    if mask is None:
        cx.held.hold(Load(buffer, (index,)), value, frozenset([area]))


def element_address(cx: Context, buffer: Buffer, position: LLValue) -> LLValue:
    """The address of an element that is there to be read or written."""
    kind = memory_type(buffer.dtype)
    return cx.builder.gep(cx.address(buffer), [position], inbounds=True, source_etype=kind)


def any_address(cx: Context, buffer: Buffer, position: LLValue) -> LLValue:
    """The address that an element has, or would have past the ends of the buffer."""
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
    """What must be evaluated to reach the elements: the first index of neighbours, or all."""
    return index.base if _is_contiguous(index) else index


def load_start(cx: Context, node: Load) -> Expr:
    """The same for a load, which can also skip through neighbours."""
    (index,) = node.indices
    return index.base if isinstance(index, Ramp) and _is_spread(cx, node) else access_start(index)


def _is_spread(cx: Context, node: Load) -> bool:
    """Whether every second, third or fourth of some neighbours is loaded."""
    (index,) = node.indices
    if not isinstance(index, Ramp) or not isinstance(index.stride, Const):
        return False
    return 2 <= index.stride.value <= 4 and (node.mask is None or _masks(cx, node.dtype))


def _masks(cx: Context, dtype: DType) -> bool:
    """Whether some lanes of a vector are loaded by an instruction, not by a branch for each."""
    needs = "avx2" if dtype.bits in (32, 64) else "avx512bw"
    return cx.target.arch == "x86_64" and not dtype.is_bool and cx.target.has(needs)


def _is_contiguous(index: Expr) -> TypeGuard[Ramp]:
    return isinstance(index, Ramp) and index.stride is const(1)


def _alignment(buffer: Buffer, index: Expr, known: int = 1) -> int:
    """What the address of an access is known to divide by, that of the first element by `known`."""
    size, most = buffer.dtype.itemsize, min(max(known, buffer.alignment), ALIGNMENT_LIMIT)
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


# ---- neighbouring elements ----------------------------------------------------------------------


def _load_contiguous(
    cx: Context, node: Load, index: Ramp, position: LLValue, mask: LLValue | None
) -> LLValue:
    address = _known_address(cx, node.buffer, index.base, position)
    kind, align = memory_type(node.dtype), _alignment(node.buffer, index.base)
    if mask is not None and isinstance(node.mask, Broadcast):
        # All lanes or none: zeros are loaded from elsewhere, which takes no branch.
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
        found.linkage, found.global_constant, found.align = "internal", True, ALIGNMENT_LIMIT
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
    stored.align = _alignment(buffer, index.base, ALIGNMENT_LIMIT if streams else 1)
    # Vectors that lie across two lines cannot bypass the caches.
    if streams and stored.align >= buffer.dtype.itemsize * index.dtype.lanes:
        stored.set_metadata("nontemporal", cx.module.add_metadata([llvm.Constant(i32, 1)]))
    cx.aliases.mark(stored, buffer)


def _load_spread(cx: Context, node: Load, position: LLValue, mask: LLValue | None) -> LLValue:
    """All neighbours from the first to the last lane, of which those that are wanted are kept."""
    (index,) = node.indices
    assert isinstance(index, Ramp) and isinstance(index.stride, Const)
    step, lanes = int(index.stride.value), node.dtype.lanes
    address = element_address(cx, node.buffer, position)
    kind = memory_type(node.dtype.with_lanes(step * (lanes - 1) + 1))
    if mask is None:
        loaded = cx.builder.load(address, typ=kind)
        loaded.align = node.dtype.itemsize
    else:
        # Neighbours that no lane wants need not be there.
        wanted = _spread_mask(cx, mask, step)
        zeros = llvm.Constant(kind, None)
        types = [kind, address.type]
        loaded = cx.intrinsic("llvm.masked.load", kind, [address, wanted, zeros], types)
    cx.aliases.mark(loaded, node.buffer)
    kept = _shuffled(cx, loaded, llvm.Undefined, [step * k for k in range(lanes)])
    return _from_memory(cx, node.dtype, kept)


def _spread_mask(cx: Context, mask: LLValue, step: int) -> LLValue:
    """The lanes of `mask` so far apart, with false between them."""
    lanes = mask.type.count
    order = [k // step if k % step == 0 else lanes for k in range(step * (lanes - 1) + 1)]
    return _shuffled(cx, mask, None, order)


def _shuffled(cx: Context, vector: LLValue, other: Any, order: list[int]) -> LLValue:
    """Lanes of `vector`, and of a constant that numbers past its end name."""
    numbers = llvm.Constant(
        llvm.VectorType(i32, len(order)), [llvm.Constant(i32, k) for k in order]
    )
    return cx.builder.shuffle_vector(vector, llvm.Constant(vector.type, other), numbers)


# ---- lanes here and there -----------------------------------------------------------------------


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
