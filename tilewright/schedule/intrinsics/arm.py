"""Dot products and small matrix products of AArch64: dotprod, i8mm, bf16.

The dot products take rows four at a time: one vector of A holds the groups of four rows, and the
instruction selects one of its lanes. The matrix products (`smmla` and kin) multiply 2 × 8 bytes (2
× 4 bfloat16) by as many columns into 2 × 2 results. `usdot` takes unsigned bytes first.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import DType
from tilewright.schedule.intrinsics.dot import Dot

_U8, _S8, _S32 = (DType.of(t) for t in ("uint8", "int8", "int32"))
_BF16, _F32 = DType.of("bfloat16"), DType.of("float32")
_BYTES, _HALVES = "v4i32.v16i8", "v4f32.v8bf16"


def _dot(name: str, types: str, a: DType, b: DType, out: DType, needs: str) -> Dot:
    llvm = f"llvm.aarch64.neon.{name}.{types}"
    # The last operand is the one of which the instruction can take a single group.
    return Dot(f"arm.{name}", llvm, a, b, out, 4, 4, (needs,), columns_first=a is b)


def _product(name: str, types: str, a: DType, b: DType, out: DType, needs: str) -> Dot:
    llvm = ".".join(filter(None, ("llvm.aarch64.neon", name, types)))
    return Dot(
        f"arm.{name}", llvm, a, b, out, rows=2, columns=2, needs=(needs,), square=True, row_bits=64
    )


def _row_dot(dot: Dot) -> Dot:
    """The same for a single row, whose group is broadcast from memory to all lanes."""
    return replace(dot, name=f"{dot.name}_row", rows=1)


def _lane_dot(dot: Dot) -> Dot:
    """The same lane by lane."""
    return replace(dot, name=f"{dot.name}_lanes", rows=1, by_lane=True)


_SDOT = _dot("sdot", _BYTES, _S8, _S8, _S32, "dotprod")
_UDOT = _dot("udot", _BYTES, _U8, _U8, _S32, "dotprod")
_BFDOT = _dot("bfdot", _HALVES, _BF16, _BF16, _F32, "bf16")
_USDOT = _dot("usdot", _BYTES, _U8, _S8, _S32, "i8mm")

#: The fastest first.
ARM_DOTS: tuple[Dot, ...] = tuple(
    dot.register()
    for dot in (
        _product("smmla", _BYTES, _S8, _S8, _S32, "i8mm"),
        _product("ummla", _BYTES, _U8, _U8, _S32, "i8mm"),
        _product("usmmla", _BYTES, _U8, _S8, _S32, "i8mm"),
        _product("bfmmla", "", _BF16, _BF16, _F32, "bf16"),
        _SDOT,
        _UDOT,
        _USDOT,
        _USDOT.with_columns_first("arm.usdot_columns"),
        _BFDOT,
        *(_row_dot(dot) for dot in (_SDOT, _UDOT, _USDOT, _BFDOT)),
    )
)
#: The ones that multiply lane by lane.
ARM_LANE_DOTS: tuple[Dot, ...] = tuple(_lane_dot(dot).register() for dot in (_SDOT, _UDOT, _USDOT))
