"""Compute with small number formats in wider ones.

    C[i] = A[i] * B[i]                                            bf16
    -->
    C[i] = encode(decode(A[i]) * decode(B[i]))                    A, B, C: u16; the product is f32

float16, bfloat16, the float8 and float4 formats and integers smaller than a byte are represented by
the unsigned integers of their bits, in buffers and in registers. Every operation decodes its
operands, computes in float32 and encodes its result, which rounds it (see `lower.formats`).
Operations that only move values (select, broadcast, a load that is stored) move the bits.

Calls of a target's own instructions, and of C functions, keep their original types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.ir import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    DType,
    Expr,
    Function,
    Let,
    Load,
    Param,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
    cast,
    map_expr,
    map_stmt,
    regroup,
    reinterpret,
)
from tilewright.lower.formats import Formats, carrier, fused_multiply_add, is_narrow

Operands = tuple[Expr, ...]
#: Intrinsics that only move values or take addresses.
_MOVES = frozenset(
    "lane zip zip_low zip_high unpack_low unpack_high join address_of tile_of distance "
    "keep_order".split()
)


def legalize_types(function: Function, formats: frozenset[str] = frozenset()) -> Function:
    """Replace arithmetic on small formats, and conversions that would need a library.

    `formats` are those that the target converts natively.
    """
    legalizer = _Legalizer(Formats(formats))
    body = legalizer.body(function.body)
    params = tuple(legalizer.param(p) for p in function.params)
    if body is function.body and params == function.params:
        return function
    return replace(function, params=params, body=body)


class _Legalizer:
    """Maps every expression of a narrow type to one of its bits."""

    def __init__(self, formats: Formats) -> None:
        self.formats = formats
        self._buffers: dict[Buffer, Buffer] = {}
        self._vars: dict[Var, Var] = {}
        self._memo: dict[Expr, Expr] = {}

    def body(self, stmt: Stmt) -> Stmt:
        return map_stmt(stmt, self._on_stmt, self._on_expr)

    def param(self, param: Param) -> Param:
        return self.var(param) if isinstance(param, Var) else self.buffer(param)

    def buffer(self, buffer: Buffer) -> Buffer:
        if not is_narrow(buffer.dtype):
            return buffer
        if buffer not in self._buffers:
            self._buffers[buffer] = buffer.with_(dtype=carrier(buffer.dtype))
        return self._buffers[buffer]

    def var(self, var: Var) -> Var:
        if not is_narrow(var.dtype):
            return var
        return self._vars.setdefault(var, Var(var.name, carrier(var.dtype)))

    # ---- statements -----------------------------------------------------------------------------

    def _on_stmt(self, stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and is_narrow(stmt.buffer.dtype):
            return replace(stmt, buffer=self.buffer(stmt.buffer))
        if isinstance(stmt, Let) and is_narrow(stmt.var.dtype):
            return replace(stmt, var=self.var(stmt.var))
        if isinstance(stmt, Alloc) and any(is_narrow(b.dtype) for b in stmt.buffers):
            return replace(stmt, buffers=tuple(map(self.buffer, stmt.buffers)))
        return None

    # ---- expressions ----------------------------------------------------------------------------

    def _on_expr(self, root: Expr) -> Expr:
        return map_expr(root, self._finish, self._memo, self._over)

    def _over(self, node: Expr, operands: Operands) -> Expr:
        """`node` with mapped operands; those of narrow types are bits now."""
        if not any(is_narrow(o.dtype) for o in node.operands):
            return node.with_operands(operands)
        return _RULES[type(node)](self, node, operands)

    def _finish(self, node: Expr) -> Expr | None:
        """A node of a narrow type whose operands are not narrow."""
        if not is_narrow(node.dtype):
            return None
        return _SOURCES[type(node)](self, node)

    def decoded(self, node: Expr, operands: Operands) -> list[Expr]:
        """The operands as numbers to compute with."""
        return [
            self.formats.decode(bits, before.dtype) if is_narrow(before.dtype) else bits
            for before, bits in zip(node.operands, operands, strict=True)
        ]

    def encoded(self, value: Expr, wanted: Expr) -> Expr:
        return self.formats.encode(value, wanted.dtype) if is_narrow(wanted.dtype) else value

    # ---- where values of narrow types come from -------------------------------------------------

    def const(self, node: Const) -> Expr:
        import numpy as np

        bits = carrier(node.dtype)
        return Const(int(np.array(node.value, node.dtype.numpy).view(bits.numpy)), bits)

    def load(self, node: Load) -> Expr:
        return Load(self.buffer(node.buffer), node.indices, node.mask)

    def converted(self, node: Cast) -> Expr:
        return self.formats.encode(node.a, node.dtype)

    def called(self, node: Call) -> Expr:
        if node.name.startswith("reinterpret_"):
            return _seen_as(node.args[0], carrier(node.dtype))
        return reinterpret(node, carrier(node.dtype))

    # ---- what is done with them -----------------------------------------------------------------

    def compute(self, node: Unary | Binary, operands: Operands) -> Expr:
        return self.encoded(node.with_operands(tuple(self.decoded(node, operands))), node)

    def move(self, node: Select | Broadcast, operands: Operands) -> Expr:
        return node.with_operands(operands)

    def convert(self, node: Cast, operands: Operands) -> Expr:
        (value,) = self.decoded(node, operands)
        if is_narrow(node.dtype):
            return self.formats.encode(value, node.dtype)
        return cast(value, node.dtype)

    def call(self, node: Call, operands: Operands) -> Expr:
        if node.name.startswith("reinterpret_"):
            wanted = carrier(node.dtype) if is_narrow(node.dtype) else node.dtype
            return _seen_as(operands[0], wanted)
        if node.name in _MOVES:
            result = carrier(node.dtype) if is_narrow(node.dtype) else node.dtype
            return Call(node.name, operands, result)
        if "." in node.name:
            return self._foreign_call(node, operands)
        values = self.decoded(node, operands)
        if node.name == "fma":
            return self.encoded(fused_multiply_add(*values), node)
        wide = values[0].dtype if is_narrow(node.dtype) else node.dtype
        return self.encoded(Call(node.name, tuple(values), wide), node)

    def _foreign_call(self, node: Call, operands: Operands) -> Expr:
        typed = tuple(
            reinterpret(bits, before.dtype.scalar) if is_narrow(before.dtype) else bits
            for before, bits in zip(node.args, operands, strict=True)
        )
        result = Call(node.name, typed, node.dtype)
        return reinterpret(result, carrier(node.dtype)) if is_narrow(node.dtype) else result


def _seen_as(bits: Expr, dtype: DType) -> Expr:
    return bits if bits.dtype.scalar is dtype.scalar else regroup(bits, dtype.scalar)


_SOURCES: dict[type[Expr], Callable[[_Legalizer, Any], Expr]] = {
    Const: _Legalizer.const,
    Var: _Legalizer.var,
    Load: _Legalizer.load,
    Cast: _Legalizer.converted,
    Call: _Legalizer.called,
}
_RULES: dict[type[Expr], Callable[[_Legalizer, Any, Operands], Expr]] = {
    Unary: _Legalizer.compute,
    Binary: _Legalizer.compute,
    Select: _Legalizer.move,
    Broadcast: _Legalizer.move,
    Cast: _Legalizer.convert,
    Call: _Legalizer.call,
}
