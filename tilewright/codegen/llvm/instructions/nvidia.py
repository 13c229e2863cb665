"""NVIDIA's instructions: products by warps and warp groups, async copies to shared memory."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.memory import known_alignment
from tilewright.codegen.llvm.types import LLType, LLValue, i32, i64, llvm, memory_type, void
from tilewright.ir import (
    GROUP,
    GROUP_PRODUCTS,
    SWIZZLE_BYTES,
    WARP,
    WARP_PRODUCTS,
    Binary,
    Call,
    Const,
    DType,
    Expr,
    Factors,
    Load,
    WarpProduct,
)
from tilewright.support.errors import UserError

_SHARED: Final = llvm.PointerType(addrspace=3)
_GLOBAL: Final = llvm.PointerType(addrspace=1)
_FLOAT: Final = llvm.FloatType()
_LOG2_E: Final = struct.unpack("f", struct.pack("f", 1.4426950408889634))[0]
_HALVES: Final = llvm.VectorType(llvm.HalfType(), 2)
#: PTX types of factors, where they differ from those of values.
_FACTORS: Final = {"float32": "tf32"}
#: PTX types of values.
_KINDS: Final = {
    "float32": "f32",
    "int32": "s32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "int8": "s8",
    "uint8": "u8",
}


def warp_product(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """C += A · B on tiles of 16 × 16, as two products of 8 columns each."""
    gpu, product = cx.target.gpu, WARP_PRODUCTS[node.name]
    if gpu is None or not gpu.multiplies(product.factors.a.name):
        since = "sm_89" if product.factors.a.name.startswith("float8") else "sm_80"
        wide = " for -products=tf32" if product.factors.a.name in _FACTORS else ""
        raise _missing(cx, node, f"GPUs since {since} have it{wide}")
    sums, a_place, b_place = args
    if product.a_is_own:
        a = _own_matrix(cx, a_place)
    else:
        a = _read_tile(cx, a_place, is_transposed=product.a_by_columns)
    b = _read_tile(cx, b_place, is_transposed=not product.b_by_columns)
    for half in range(2):
        _multiply(cx, product, a, b[2 * half : 2 * half + 2], _element(cx, sums, 4 * half))
    return llvm.Constant(i32, 0)


def _own_matrix(cx: Context, place: LLValue) -> list[LLValue]:
    """A thread's part of an operand in registers: eight elements, in pairs."""
    return [cx.builder.load(_element(cx, place, k, i32), typ=i32) for k in range(4)]


def _named(count: int, first: int) -> list[str]:
    """Placeholders of operands in inline assembly."""
    return [f"${first + k}" for k in range(count)]


def _missing(cx: Context, node: Call, where: str) -> UserError:
    return UserError(
        f"cannot compile a call of {node.name}",
        reason=f"{where}, and the target is {cx.target}",
        remedy="build for such a GPU, or leave tensorize out",
    )


def coarse_exp(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """exp by the instruction for powers of two."""
    power = cx.declare("llvm.nvvm.ex2.approx.ftz.f", _FLOAT, [_FLOAT])

    def of(value: LLValue) -> LLValue:
        return cx.builder.call(power, [cx.builder.fmul(value, llvm.Constant(_FLOAT, _LOG2_E))])

    return _by_lanes(cx, of, args, node.dtype.lanes)


def coarse_reciprocal(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    about = cx.declare("llvm.nvvm.rcp.approx.ftz.f", _FLOAT, [_FLOAT])

    def of(value: LLValue) -> LLValue:
        return cx.builder.call(about, [value])

    return _by_lanes(cx, of, args, node.dtype.lanes)


def _by_lanes(cx: Context, of: Callable[..., LLValue], args: list[LLValue], lanes: int) -> LLValue:
    """Applies a scalar function to each lane."""
    if lanes == 1:
        return of(*args)
    result = llvm.Constant(args[0].type, llvm.Undefined)
    for number in (llvm.Constant(i32, k) for k in range(lanes)):
        made = of(*(cx.builder.extract_element(x, number) for x in args))
        result = cx.builder.insert_element(result, made, number)
    return result


def of_lane(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """A value of another lane of the warp; `count` neighbouring lanes execute it together."""
    value, lane, _ = args
    if node.dtype.bits * node.dtype.lanes != 32 or cx.target.gpu is None:
        raise _missing(cx, node, "GPUs have it for 32 bits")
    if node.dtype.is_vector:
        word = cx.builder.bitcast(value, i32)
        return cx.builder.bitcast(_exchanged(cx, node, word, lane, "i32"), value.type)
    return _exchanged(cx, node, value, lane, "f32" if node.dtype.is_float else "i32")


def _exchanged(cx: Context, node: Call, value: LLValue, lane: LLValue, kind: str) -> LLValue:
    builder, count = cx.builder, _number(node.args[2])
    first = builder.and_(lane, llvm.Constant(i32, -count))
    mask = builder.shl(llvm.Constant(i32, (1 << count) - 1 if count < 32 else -1), first)
    name, own = f"llvm.nvvm.shfl.sync.idx.{kind}", value.type
    called = cx.declare(name, own, [i32, own, i32, i32])
    return builder.call(called, [mask, value, lane, llvm.Constant(i32, 31)])


def group_product(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """C += A · B by a warp group (`wgmma`); its sums may be read once it is waited for."""
    gpu, product = cx.target.gpu, GROUP_PRODUCTS[node.name]
    if gpu is None or not gpu.has_group_products:
        raise _missing(cx, node, "sm_90a has it")
    sums, *places = args[:3]
    strides = [_number(a) for a in node.args[3:]]
    shared = [k for k in range(2) if k or not product.a_is_own]
    pitch = product.factors.pitch
    if any(strides[2 * k] != pitch for k in shared):
        raise UserError(
            f"cannot compile a call of {node.name}",
            reason=f"rows of its operands do not lie {pitch} elements apart in shared memory",
            remedy="lay them out in such rows (transform_layout)",
        )
    by_sum = not product.a_by_columns, product.b_by_columns
    size = product.factors.a.itemsize
    operands = [
        _described_matrix(cx, node.args[1 + k], places[k], size * strides[2 * k + 1])
        for k in shared
    ]
    if product.a_is_own:
        operands = [*_own_matrix(cx, places[0]), *operands]
    factors = product.factors
    kinds = ".".join([_KINDS[factors.sums.name], *map(_factor_kind, (factors.a, factors.b))])
    registers, given = _named(product.sums, 0), _named(len(operands), product.sums * 2)
    name = f"wgmma.mma_async.sync.aligned.m64n{product.columns}k{factors.steps}.{kinds}"
    a = f"{{{', '.join(given[:-1])}}}" if product.a_is_own else given[0]
    # Scales of float factors; then whether operands are transposed, for types that allow it.
    more = ["1", "1"] if factors.a.is_float else []
    more += [str(int(not by_sum[k])) for k in shared] if factors.lie_freely else []
    text = f"""{{
  .reg .pred adds;
  setp.ne.b32 adds, 1, 0;
  {name} {{{", ".join(registers)}}}, {a}, {", ".join([given[-1], "adds", *more])};
}}"""
    _on_sums(cx, sums, product.sums, text, operands, _sum_type(factors))
    return llvm.Constant(i32, 0)


def groups_arrive(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
    return _of_group(cx, "bar.arrive", args[0], 2, -1)


def groups_await(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
    return _of_group(cx, "bar.sync", args[0], 1, 1)


def _of_group(cx: Context, name: str, turn: LLValue, first: int, sign: int) -> LLValue:
    """An instruction on the named barrier where a group awaits the other one. Barriers 1 and 2
    serve even iterations, 3 and 4 odd ones, as a group may arrive again before the other has
    awaited it."""
    builder = cx.builder
    group = builder.call(cx.declare("llvm.nvvm.read.ptx.sreg.tid.z", i32, []), [])
    number = builder.add(builder.mul(group, llvm.Constant(i32, sign)), llvm.Constant(i32, first))
    turn = builder.and_(builder.trunc(turn, i32), llvm.Constant(i32, 1))
    number = builder.add(number, builder.shl(turn, llvm.Constant(i32, 1)))
    text = f"{name} $0, {2 * GROUP * WARP};"
    builder.asm(llvm.FunctionType(void, [i32]), text, "r,~{memory}", [number], side_effect=True)
    return llvm.Constant(i32, 0)


def products_fence(cx: Context, _node: Call, _args: list[LLValue]) -> LLValue:
    return _asm(cx, "fence.proxy.async.shared::cta;")


def products_start(cx: Context, _node: Call, _args: list[LLValue]) -> LLValue:
    return _asm(cx, "wgmma.fence.sync.aligned;")


def products_commit(cx: Context, _node: Call, _args: list[LLValue]) -> LLValue:
    return _asm(cx, "wgmma.commit_group.sync.aligned;")


def products_wait(cx: Context, node: Call, _args: list[LLValue]) -> LLValue:
    return _asm(cx, f"wgmma.wait_group.sync.aligned {_number(node.args[0])};")


def products_finish(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """Passes the sums through the wait, so that no read of them is moved before it."""
    load = node.args[0].operands[0]
    assert isinstance(load, Load)
    kind = memory_type(load.buffer.dtype)
    count, left = map(_number, node.args[1:])
    _on_sums(cx, args[0], count, f"wgmma.wait_group.sync.aligned {left};", [], kind)
    return llvm.Constant(i32, 0)


#: The upper half of a matrix descriptor: the 128-byte swizzle of 16-byte chunks, and the distance
#: between groups of eight rows, in units of 16 bytes.
_ROWS: Final = 1 << 30 | SWIZZLE_BYTES // 16


def _described_matrix(cx: Context, address: Expr, place: LLValue, apart: int) -> LLValue:
    """A matrix descriptor of `wgmma`: an address, the distance between blocks of columns, and that
    between groups of eight rows, all in units of 16 bytes; `apart` is in bytes.

    Consecutive products differ in the constant part of the address, which is added last, so that
    the rest is computed once.
    """
    load = address.operands[0]
    assert isinstance(load, Load)
    builder = cx.builder
    start = _constant_part(load.indices[0]) * load.buffer.dtype.itemsize // 16
    first = builder.gep(place, [llvm.Constant(i64, -16 * start)], source_etype=llvm.IntType(8))
    bits = builder.ptrtoint(builder.addrspacecast(first, _SHARED), i32)
    bits = builder.and_(builder.lshr(bits, llvm.Constant(i32, 4)), llvm.Constant(i32, 0x3FFF))
    bits = builder.or_(bits, llvm.Constant(i32, apart // 16 << 16))
    bits = builder.add(bits, llvm.Constant(i32, start))
    return builder.or_(builder.zext(bits, i64), llvm.Constant(i64, _ROWS << 32))


def _constant_part(index: Expr) -> int:
    """The constant addend of an index."""
    if isinstance(index, Binary) and index.op == "add":
        return _constant_part(index.a) + _constant_part(index.b)
    return int(index.value) if isinstance(index, Const) else 0


def _on_sums(
    cx: Context, sums: LLValue, count: int, text: str, operands: list[LLValue], each: LLType
) -> None:
    """Inline assembly that reads and writes the accumulators of a thread."""
    builder = cx.builder
    places = [_element(cx, sums, k, each) for k in range(count)]
    before = [builder.load(place, typ=each) for place in places]
    result = llvm.LiteralStructType([each] * count)
    kind = llvm.FunctionType(result, [v.type for v in (*before, *operands)])
    own = ["r" if v.type == i32 else "l" for v in operands]
    ties = [*["=f" if each == _FLOAT else "=r"] * count, *map(str, range(count)), *own, "~{memory}"]
    made = builder.asm(kind, text, ",".join(ties), [*before, *operands], side_effect=True)
    for k, place in enumerate(places):
        builder.store(builder.extract_value(made, k), place)


def _asm(cx: Context, text: str) -> LLValue:
    cx.builder.asm(llvm.FunctionType(void, []), text, "~{memory}", [], side_effect=True)
    return llvm.Constant(i32, 0)


def _number(expr: Expr) -> int:
    assert isinstance(expr, Const)
    return int(expr.value)


def async_copy(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    """Copy `size` bytes to shared memory: asynchronously where both sides are aligned."""
    to, source, _, read = args
    length = node.args[2]
    assert isinstance(length, Const)
    size = int(length.value)
    if not _runs_ahead(cx) or not _is_aligned(node, size):
        _copy_at_once(cx, node, args)
        return llvm.Constant(i32, 0)
    kind = "cg" if size == 16 else "ca"
    places = [cx.builder.addrspacecast(p, t) for p, t in ((to, _SHARED), (source, _GLOBAL))]
    name = f"llvm.nvvm.cp.async.{kind}.shared.global.{size}"
    if node.args[3] is length:
        _call_for_effect(cx, name, places)
    else:
        _call_for_effect(cx, f"{name}.s", [*places, cx.builder.trunc(read, i32)])
    return llvm.Constant(i32, 0)


def _runs_ahead(cx: Context) -> bool:
    return cx.target.gpu is not None and cx.target.gpu.has_warp_products


def async_commit(cx: Context, _node: Call, _args: list[LLValue]) -> LLValue:
    if _runs_ahead(cx):
        _call_for_effect(cx, "llvm.nvvm.cp.async.commit.group", [])
    return llvm.Constant(i32, 0)


def async_wait(cx: Context, node: Call, _args: list[LLValue]) -> LLValue:
    if _runs_ahead(cx):
        (left,) = node.args
        assert isinstance(left, Const)
        count = llvm.Constant(i32, int(left.value))
        _call_for_effect(cx, "llvm.nvvm.cp.async.wait.group", [count])
    return llvm.Constant(i32, 0)


def _is_aligned(node: Call, size: int) -> bool:
    loads = [a.operands[0] for a in node.args[:2]]
    return all(
        isinstance(e, Load) and known_alignment(e.buffer, e.indices[0]) % size == 0 for e in loads
    )


def _copy_at_once(cx: Context, node: Call, args: list[LLValue]) -> None:
    """The copy by plain loads and stores of elements."""
    to, source, size, read = args
    builder, load = cx.builder, node.args[0].operands[0]
    assert isinstance(load, Load)
    kind, each = memory_type(load.buffer.dtype), load.buffer.dtype.itemsize
    is_read = builder.icmp_signed("==", read, size)
    for k in range(size.constant // each):
        before = builder.block
        at = llvm.Constant(i32, k)
        with builder.if_then(is_read):
            value = builder.load(builder.gep(source, [at], source_etype=kind), typ=kind)
            value.align = each
            inside = builder.block
        chosen = builder.phi(kind)
        chosen.add_incoming(value, inside)
        chosen.add_incoming(llvm.Constant(kind, None), before)
        builder.store(chosen, builder.gep(to, [at], source_etype=kind)).align = each


def _call_for_effect(cx: Context, name: str, args: list[LLValue]) -> None:
    cx.builder.call(cx.declare(name, void, [a.type for a in args]), args)


def _read_tile(cx: Context, place: LLValue, *, is_transposed: bool) -> list[LLValue]:
    """Four matrices of 8 × 8 from shared memory, distributed over the warp (`ldmatrix`)."""
    suffix = ".trans" if is_transposed else ""
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{suffix}.b16.p3"
    return _call(cx, name, i32, 4, [cx.builder.addrspacecast(place, _SHARED)])


def _multiply(
    cx: Context, product: WarpProduct, a: list[LLValue], b: list[LLValue], sums: LLValue
) -> None:
    """Add a product to the four accumulators of a thread."""
    factors, kind = product.factors, _sum_type(product.factors)
    is_half = factors.a.name == "float16"
    name = f"llvm.nvvm.mma.m16n8k{factors.steps}.row.col.{_intrinsic_types(factors)}"
    operands = [cx.builder.bitcast(x, _HALVES) if is_half else x for x in (*a, *b)]
    places = [_element(cx, sums, k, kind) for k in range(4)]
    before = [cx.builder.load(place, typ=kind) for place in places]
    after = _call(cx, name, kind, 4, [*operands, *before])
    for value, place in zip(after, places, strict=True):
        cx.builder.store(value, place)


def _intrinsic_types(factors: Factors) -> str:
    """The type suffix in LLVM's names of `mma.sync`, which omits types implied by others."""
    a, b = map(_factor_kind, (factors.a, factors.b))
    if factors.a.name == "float16":
        return "f32.f32"
    if factors.a.itemsize == 1 and factors.a.is_float:
        return f"f32.{a}.{b}.f32"
    return a if a == b else f"{a}.{b}"


def _factor_kind(dtype: DType) -> str:
    """The PTX type of a factor."""
    return _FACTORS.get(dtype.name, _KINDS[dtype.name])


def _sum_type(factors: Factors) -> LLType:
    return _FLOAT if factors.sums.is_float else i32


def _call(cx: Context, name: str, kind: LLType, count: int, args: list[LLValue]) -> list[LLValue]:
    """The results of an intrinsic that returns a struct."""
    result = llvm.LiteralStructType([kind] * count)
    made = cx.builder.call(cx.declare(name, result, [a.type for a in args]), args)
    return [cx.builder.extract_value(made, k) for k in range(count)]


def _element(cx: Context, start: LLValue, number: int, kind: LLType = _FLOAT) -> LLValue:
    return cx.builder.gep(start, [llvm.Constant(i32, number)], source_etype=kind)
