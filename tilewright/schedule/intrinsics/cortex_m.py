"""Dot products of Cortex-M: one sum in a scalar register.

`smlad` of the DSP extension takes two registers with two halfwords each; bytes are widened to
halfwords first (`rules.widen`). `vmladava` of Helium takes two vectors of sixteen bytes.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.ir import (
    Buffer,
    Call,
    DType,
    Expr,
    Load,
    Ramp,
    Store,
    as_expr,
    const,
    declare,
    regroup,
)
from tilewright.schedule.intrinsics.dot import Dot
from tilewright.schedule.tensor_intrin import register_maker

_S8, _S16, _S32 = (DType.of(t) for t in ("int8", "int16", "int32"))


class _SumDot(Dot):
    """An instruction whose accumulator is a scalar register."""

    def register(self) -> Dot:
        count, value = self._declared()
        declare(
            self.llvm,
            count,
            "any",
            lambda _: _S32,
            doc=f"{self.name}: the sum of products of {self.a}, added to an accumulator",
            value=value,
            needs=self.needs,
        )
        register_maker(self.name, self.intrin)
        return self

    def _declared(self) -> tuple[int, Any]:
        """The number of its operands, and its effect on NumPy arrays."""
        raise NotImplementedError

    def _arguments(self, a: Expr, b: Expr, c: Expr) -> tuple[Expr, ...]:
        raise NotImplementedError

    def _calls(self, a: Buffer, b: Buffer, c: Buffer) -> Any:
        first, second = (Load(x, (Ramp(const(0), const(1), self.depth),)) for x in (a, b))
        where = (const(0),)
        arguments = self._arguments(first, second, Load(c, where))
        return Store(c, where, Call(self.llvm, arguments, _S32))


class _PairDot(_SumDot):
    """`smlad`: the accumulator comes last."""

    def _declared(self) -> tuple[int, Any]:
        return 3, _smlad

    def _arguments(self, a: Expr, b: Expr, c: Expr) -> tuple[Expr, ...]:
        return regroup(a, _S32), regroup(b, _S32), c


class _VectorDot(_SumDot):
    """`vmladava`: flags come first (unsigned, subtract, exchange lanes)."""

    def _declared(self) -> tuple[int, Any]:
        return 6, _vmladava

    def _arguments(self, a: Expr, b: Expr, c: Expr) -> tuple[Expr, ...]:
        flags = [as_expr(flag, _S32) for flag in (0, 0, 0)]
        return *flags, c, a, b


def _smlad(first: Any, second: Any, total: Any) -> Any:
    low = (first << 16 >> 16) * (second << 16 >> 16)
    return total + low + (first >> 16) * (second >> 16)


def _vmladava(_unsigned: Any, _subtracts: Any, _exchanges: Any, total: Any, a: Any, b: Any) -> Any:
    return total + (a.astype("int32") * b.astype("int32")).sum(-1, dtype="int32")


#: The fastest first.
CORTEX_M_DOTS: Final[tuple[Dot, ...]] = tuple(
    dot.register()
    for dot in (
        _VectorDot(
            "arm.vmladava",
            "llvm.arm.mve.vmldava.v16i8",
            _S8,
            _S8,
            _S32,
            1,
            1,
            ("mve",),
            row_bits=128,
        ),
        _PairDot("arm.smlad", "llvm.arm.smlad", _S16, _S16, _S32, 1, 1, ("dsp",)),
    )
)
