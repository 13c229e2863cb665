"""AMX: products of tiles in matrix registers.

A tile has 16 rows of 64 bytes. With g elements in 32 bits (4 bytes or 2 bfloat16), and W = 16 * g
of them in a row:

    A tile   A[i * W + k]                      16 rows × W along the reduction, as they are
    B tile   B[k // g * W + j * g + k % g]     16 columns; g neighbours along k contiguous
    C tile   C[i * 16 + j]                     16 × 16 sums of 32 bits

Buffers of scope `tile` live in the registers: `tile_of` of an element is the number of its
register. Lowering assigns these numbers, and configures the unit on every thread (`lower.tiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import (
    Buffer,
    DType,
    Evaluate,
    Expr,
    For,
    Function,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    address_of,
    call,
    cast,
    const,
    declare,
    make_block,
)
from tilewright.schedule.tensor_intrin import TensorIntrin, register_maker

ROWS, ROW_BYTES = 16, 64
#: The type of calls without a result.
_NOTHING = DType.of("bool")
_U8, _S8, _S32 = (DType.of(t) for t in ("uint8", "int8", "int32"))
_F16, _BF16, _F32 = (DType.of(t) for t in ("float16", "bfloat16", "float32"))

for _name, _arity in (("tilezero", 1), ("tileloadd64", 3), ("tilestored64", 3)):
    declare(f"llvm.x86.{_name}", _arity, "any", lambda _: _NOTHING, pure=False, needs=("amx-tile",))


@dataclass(frozen=True)
class TileProduct:
    """C += A · B on tiles of these types."""

    name: str
    a: DType
    b: DType
    out: DType
    needs: str

    @property
    def group(self) -> int:
        """Elements in 32 bits."""
        return 32 // self.a.bits

    @property
    def width(self) -> int:
        """Elements in a row of a tile."""
        return ROW_BYTES // self.a.itemsize

    def register(self) -> TileProduct:
        declare(
            f"llvm.x86.{self.name}",
            3,
            "any",
            lambda _: _NOTHING,
            pure=False,
            needs=(self.needs,),
        )
        register_maker(f"amx.{self.name}", self._intrin)
        return self

    def _intrin(self) -> TensorIntrin:
        elements = ROWS * self.width
        a = _tile("A", self.a, elements)
        b = _tile("B", self.b, elements)
        c = _tile("C", self.out, ROWS * ROWS)
        i, j, k = Var("vi"), Var("vj"), Var("vk")
        place = (i * ROWS + j,)
        left = cast(a[i * self.width + k], self.out)
        right = cast(b[k // self.group * self.width + j * self.group + k % self.group], self.out)
        update = Store(c, place, Load(c, place) + left * right)
        numbers = [call("tile_of", tile[0]) for tile in (c, a, b)]
        return TensorIntrin(
            f"amx.{self.name}",
            _described((a, b, c), update, (i, ROWS), (j, ROWS), (k, self.width)),
            _implementation((a, b, c), call(f"llvm.x86.{self.name}", *numbers)),
            (self.needs,),
        )


def _tile(name: str, dtype: DType, elements: int) -> Buffer:
    return Buffer(name, dtype, (elements,), scope="tile")


def _described(params: Sequence[Buffer], update: Stmt, *domain: tuple[Var, int]) -> Function:
    """Loops around one update; the third variable is that of the reduction."""
    kinds: tuple[Any, ...] = ("spatial", "spatial", "reduce")
    loops = [Var(var.name.removeprefix("v")) for var, _ in domain]
    iters = [Iter(var, const(n), kind) for (var, n), kind in zip(domain, kinds, strict=False)]
    nest: Stmt = make_block("D", iters, loops, update)
    for loop, (_, extent) in zip(reversed(loops), reversed(domain), strict=True):
        nest = For(loop, const(extent), "serial", nest)
    return Function("description", tuple(params), nest)


def _implementation(params: Sequence[Buffer], effect: Expr) -> Function:
    return Function("implementation", tuple(params), Evaluate(effect))


#: The products that the unit supports.
TILE_PRODUCTS: tuple[TileProduct, ...] = tuple(
    product.register()
    for product in (
        TileProduct("tdpbssd", _S8, _S8, _S32, "amx-int8"),
        TileProduct("tdpbsud", _S8, _U8, _S32, "amx-int8"),
        TileProduct("tdpbusd", _U8, _S8, _S32, "amx-int8"),
        TileProduct("tdpbuud", _U8, _U8, _S32, "amx-int8"),
        TileProduct("tdpbf16ps", _BF16, _BF16, _F32, "amx-bf16"),
        TileProduct("tdpfp16ps", _F16, _F16, _F32, "amx-fp16"),
    )
)


# ---- moving tiles -------------------------------------------------------------------------------


def _zero(dtype: DType) -> TensorIntrin:
    """C[i * 16 + j] = 0"""
    c = _tile("C", dtype, ROWS * ROWS)
    i, j = Var("vi"), Var("vj")
    start = Store(c, (i * ROWS + j,), const(0, dtype))
    return TensorIntrin(
        f"amx.zero.{dtype.short}",
        _described((c,), start, (i, ROWS), (j, ROWS)),
        _implementation((c,), call("llvm.x86.tilezero", call("tile_of", c[0]))),
        ("amx-tile",),
    )


def _load(dtype: DType) -> TensorIntrin:
    """D[x] = S[x]: a tile from 1024 contiguous bytes"""
    elements = ROWS * ROW_BYTES // dtype.itemsize
    source, tile = Buffer("S", dtype, (elements,)), _tile("D", dtype, elements)
    x = Var("vx")
    place = call("tile_of", tile[0]), address_of(source[0]), const(ROW_BYTES)
    return TensorIntrin(
        f"amx.load.{dtype.short}",
        _described((source, tile), Store(tile, (x,), source[x]), (x, elements)),
        _implementation((source, tile), call("llvm.x86.tileloadd64", *place)),
        ("amx-tile",),
    )


def _store(dtype: DType) -> TensorIntrin:
    """D[i, j] = S[i * 16 + j]"""
    tile, result = _tile("S", dtype, ROWS * ROWS), Buffer("D", dtype, (ROWS, ROWS))
    i, j = Var("vi"), Var("vj")
    copy = Store(result, (i, j), tile[i * ROWS + j])
    row = call("distance", result[0, 0], result[1, 0])
    place = call("tile_of", tile[0]), address_of(result[0, 0]), row
    return TensorIntrin(
        f"amx.store.{dtype.short}",
        _described((tile, result), copy, (i, ROWS), (j, ROWS)),
        _implementation((tile, result), call("llvm.x86.tilestored64", *place)),
        ("amx-tile",),
    )


for _dtype in (_S32, _F32):
    register_maker(f"amx.zero.{_dtype.short}", lambda dtype=_dtype: _zero(dtype))
    register_maker(f"amx.store.{_dtype.short}", lambda dtype=_dtype: _store(dtype))
for _dtype in (_U8, _S8, _F16, _BF16):
    register_maker(f"amx.load.{_dtype.short}", lambda dtype=_dtype: _load(dtype))
