"""Calls of intrinsics in LLVM.

Names that begin with `llvm.` are LLVM intrinsics, called with just the operands given: a target's
instructions need no code here. `extern.NAME` calls the C function NAME.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.instructions import nvidia, x86
from tilewright.codegen.llvm.instructions.fixed_point import mulhi_doubled, shift_nearest
from tilewright.codegen.llvm.instructions.nvidia import (
    async_commit,
    async_copy,
    async_wait,
    coarse_exp,
    group_product,
    groups_arrive,
    groups_await,
    of_lane,
    products_commit,
    products_fence,
    products_finish,
    products_start,
    products_wait,
    warp_product,
)
from tilewright.codegen.llvm.lists import LIST_EXPRESSIONS
from tilewright.codegen.llvm.memory import any_address
from tilewright.codegen.llvm.types import (
    LLValue,
    i1,
    i32,
    i64,
    lane_numbers,
    llvm,
    number,
    pointer,
    register_type,
    void,
)
from tilewright.ir import GROUP_PRODUCTS, INTRINSICS, WARP_PRODUCTS, Call, Const, Load
from tilewright.support.errors import InternalError, UserError

#: The constraint of inline assembly for a vector register.
_VECTOR_REGISTERS = {"aarch64": "w", "x86_64": "v"}
Emitter = Callable[[Context, Call, list[LLValue]], LLValue]


def emit_call(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    emitter = _EMITTERS.get(node.name)
    if emitter is not None:
        return emitter(cx, node, args)
    if node.name.startswith("reinterpret_"):
        return cx.builder.bitcast(args[0], register_type(node.dtype))
    if node.name.startswith("llvm."):
        _require_features(cx, node.name)
        return _call_named(cx, node, node.name, args)
    if node.name.startswith("extern."):
        if cx.target.host is not None:
            raise UserError(
                f"a GPU cannot call the C function {node.name.removeprefix('extern.')}",
                remedy="give random operators a seed, or compile for target 'llvm'",
            )
        return _call_named(cx, node, node.name.removeprefix("extern."), args)
    raise InternalError(f"no code for the intrinsic {node.name}")


def _require_features(cx: Context, name: str) -> None:
    """Refuse an instruction that the target lacks, on which LLVM would abort the process."""
    needs = INTRINSICS[name].needs
    if needs and not any(all(map(cx.target.has, way.split())) for way in needs):
        raise UserError(
            f"cannot compile a call of {name}",
            reason=f"that needs {' or '.join(needs)}, and the target lacks it: {cx.target}",
            remedy="build for a machine that has it",
        )


def _call_named(cx: Context, node: Call, name: str, args: list[LLValue]) -> LLValue:
    returns_nothing = not INTRINSICS[node.name].pure and node.dtype.is_bool
    result = void if returns_nothing else register_type(node.dtype)
    return cx.builder.call(cx.declare(name, result, [a.type for a in args]), args)


def _overloaded(name: str) -> Emitter:
    """An LLVM intrinsic whose operands and result have one type."""
    return lambda cx, _node, args: cx.intrinsic(name, args[0].type, args, [args[0].type])


def _abs(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    (a,) = args
    if node.dtype.is_float:
        return cx.intrinsic("llvm.fabs", a.type, [a], [a.type])
    if node.dtype.kind == "uint":
        return a
    return cx.intrinsic("llvm.abs", a.type, [a, llvm.Constant(i1, False)], [a.type])


def _isnan(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
    return cx.builder.fcmp_unordered("uno", args[0], args[0])


def _magnitude_against_infinity(predicate: str) -> Emitter:
    def emit(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
        magnitude = cx.intrinsic("llvm.fabs", args[0].type, args, [args[0].type])
        return cx.builder.fcmp_ordered(predicate, magnitude, number(float("inf"), args[0].type))

    return emit


def _signbit(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    integer = _like(llvm.IntType(node.args[0].dtype.bits), node)
    bits = cx.builder.bitcast(args[0], integer)
    return cx.builder.icmp_signed("<", bits, llvm.Constant(integer, None))


def _mulhi(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    bits = node.dtype.bits
    wide = _like(llvm.IntType(2 * bits), node)
    extend = cx.builder.sext if node.dtype.kind == "int" else cx.builder.zext
    product = cx.builder.mul(extend(args[0], wide), extend(args[1], wide))
    shifted = cx.builder.lshr(product, number(bits, wide))
    return cx.builder.trunc(shifted, register_type(node.dtype))


def _count_zeros(name: str) -> Emitter:
    def emit(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
        kind = args[0].type
        return cx.intrinsic(name, kind, [args[0], llvm.Constant(i1, False)], [kind])

    return emit


def _all_lanes(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    if not node.args[0].dtype.is_vector:
        return args[0]
    return cx.intrinsic("llvm.vector.reduce.and", i1, args, [args[0].type])


def _first_lane(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
    bits = llvm.IntType(args[0].type.count)
    mask = cx.builder.bitcast(args[0], bits)
    found = cx.intrinsic("llvm.cttz", bits, [mask, llvm.Constant(i1, False)], [bits])
    if bits.width > 64:
        return cx.builder.trunc(found, i64)
    return found if bits.width == 64 else cx.builder.zext(found, i64)


def _lane(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
    return cx.builder.extract_element(args[0], args[1])


def _zip(start: int, parts: int = 2) -> Emitter:
    """Interleave the lanes of part `start` (of `parts` equal ones) of two vectors."""

    def emit(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
        lanes = node.args[0].dtype.lanes
        first = start * lanes // parts
        order = [k + side for k in range(first, first + lanes // parts) for side in (0, lanes)]
        return _shuffled(cx, args, order)

    return emit


def _unpack(half: int) -> Emitter:
    """Interleave the lanes of the low or high half of every 16 bytes of two vectors."""

    def emit(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
        dtype = node.args[0].dtype
        own = 16 // dtype.scalar.itemsize
        starts = range(half * own // 2, dtype.lanes, own)
        order = [
            k + side
            for start in starts
            for k in range(start, start + own // 2)
            for side in (0, dtype.lanes)
        ]
        return _shuffled(cx, args, order)

    return emit


def _join(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    return _shuffled(cx, args, range(node.dtype.lanes))


def _shuffled(cx: Context, args: list[LLValue], order: Sequence[int]) -> LLValue:
    """Lanes of two vectors by number, those of the second after those of the first."""
    return cx.builder.shuffle_vector(args[0], args[1], lane_numbers(tuple(order)))


def _address_of(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    load = node.args[0]
    assert isinstance(load, Load)
    return any_address(cx, load.buffer, args[0])


def _prefetch(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    flags = [llvm.Constant(i32, v) for v in (0, 3, 1)]  # a read, to all cache levels, of data
    made = cx.intrinsic("llvm.prefetch", void, [*args, *flags], [pointer])
    # LLVM treats it as a memory access: accumulators in memory whose address escapes, for instance
    # to a function that stores them, would be written back before each one.
    for load in node.args[0].args if isinstance(node.args[0], Call) else ():
        if isinstance(load, Load):
            cx.aliases.mark(made, load.buffer)
    return made


def _keep_order(cx: Context, _node: Call, args: list[LLValue]) -> LLValue:
    """A compiler barrier without an instruction: LLVM moves no memory access across it.

    The operands are inputs of empty inline assembly, so that they are computed before it.
    """
    kind = _VECTOR_REGISTERS.get(cx.target.arch)
    if not args or kind is None:
        cx.builder.fence("acq_rel", targetscope="singlethread")
    else:
        signature = llvm.FunctionType(void, [a.type for a in args])
        places = ",".join([*([kind] * len(args)), "~{memory}"])
        cx.builder.asm(signature, "", places, args, side_effect=True)
    return llvm.Constant(i32, 0)


def _coarse_reciprocal(cx: Context, node: Call, args: list[LLValue]) -> LLValue:
    if cx.target.gpu is not None:
        return nvidia.coarse_reciprocal(cx, node, args)
    return x86.coarse_reciprocal(cx, args[0])


def _heap_block(cx: Context, node: Call, _args: list[LLValue]) -> LLValue:
    return cx.builder.ptrtoint(cx.builder.load(_block_slot(cx, node), typ=pointer), i64)


def _hand_over(cx: Context, node: Call, _args: list[LLValue]) -> LLValue:
    address = _heap_block(cx, node, [])
    cx.builder.store(llvm.Constant(pointer, None), _block_slot(cx, node))
    return address


def _block_slot(cx: Context, node: Call) -> LLValue:
    number = node.args[0]
    assert isinstance(number, Const)
    return cx.blocks[int(number.value)]


def _like(scalar: object, node: Call) -> object:
    lanes = node.args[0].dtype.lanes
    return llvm.VectorType(scalar, lanes) if lanes > 1 else scalar


_EMITTERS: dict[str, Emitter] = {
    "sqrt": _overloaded("llvm.sqrt"),
    "floor": _overloaded("llvm.floor"),
    "ceil": _overloaded("llvm.ceil"),
    "trunc": _overloaded("llvm.trunc"),
    "round": _overloaded("llvm.roundeven"),
    "fma": _overloaded("llvm.fmuladd"),
    "coarse_exp": coarse_exp,
    "coarse_reciprocal": _coarse_reciprocal,
    "of_lane": of_lane,
    "copysign": _overloaded("llvm.copysign"),
    "popcount": _overloaded("llvm.ctpop"),
    "clz": _count_zeros("llvm.ctlz"),
    "ctz": _count_zeros("llvm.cttz"),
    "abs": _abs,
    "isnan": _isnan,
    "isinf": _magnitude_against_infinity("=="),
    "isfinite": _magnitude_against_infinity("<"),
    "signbit": _signbit,
    "mulhi": _mulhi,
    "mulhi_doubled": mulhi_doubled,
    "shift_nearest": shift_nearest,
    "all_lanes": _all_lanes,
    "first_lane": _first_lane,
    "lane": _lane,
    "zip": _zip(0, parts=1),
    "zip_low": _zip(0),
    "zip_high": _zip(1),
    "unpack_low": _unpack(0),
    "unpack_high": _unpack(1),
    "join": _join,
    "address_of": _address_of,
    "keep_order": _keep_order,
    "prefetch": _prefetch,
    "heap_block": _heap_block,
    "heap_hand_over": _hand_over,
    **LIST_EXPRESSIONS,
    **dict.fromkeys(WARP_PRODUCTS, warp_product),
    **dict.fromkeys(GROUP_PRODUCTS, group_product),
    "products_fence": products_fence,
    "groups_arrive": groups_arrive,
    "groups_await": groups_await,
    "products_start": products_start,
    "products_commit": products_commit,
    "products_wait": products_wait,
    "products_finish": products_finish,
    "async_copy": async_copy,
    "async_commit": async_commit,
    "async_wait": async_wait,
}
