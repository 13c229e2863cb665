"""`te.extern`: tensors that a body of statements, or a C function, fills in.

A call of the C function `f` is the intrinsic `extern.f`. Its operands are scalars and addresses of
elements (`uint64`); it counts as touching all of the buffers that it is pointed into.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import (
    INTRINSICS,
    Block,
    Buffer,
    Call,
    DType,
    Evaluate,
    Expr,
    Load,
    Stmt,
    address_of,
    as_expr,
    const,
    declare,
    whole_region,
)
from tilewright.support.errors import UserError
from tilewright.tensor.te.operand import one_or_several
from tilewright.tensor.te.tensor import Definition, Tensor, shape_of

_SYMBOL = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
Body = Callable[[Sequence[Buffer], Sequence[Buffer]], object]


class Extern(Definition):
    """Tensors whose elements are written by a custom body, which reads all of its inputs."""

    kind = "extern"

    def __init__(self, name: str, inputs: Sequence[Tensor], body: Body) -> None:
        super().__init__(name, (), inputs)
        self._body = body

    def block(self, name: str, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Block:
        """The block over these buffers; built anew each time, as functions share no statements."""
        made = self._body(ins, outs)
        if isinstance(made, Expr):
            made = Evaluate(made, span=self.span)
        if not isinstance(made, Stmt):
            raise UserError(
                f"{self.where()} has no body",
                reason=f"its function returned {made!r}",
                remedy="return a statement, or te.call_extern(…)",
            )
        reads, writes = map(whole_region, ins), map(whole_region, outs)
        return Block(name, (), (), made, tuple(reads), tuple(writes), span=self.span)


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fbody: Body,
    dtype: Any = None,
    name: str = "extern",
) -> Any:
    """Tensors that `fbody(ins, outs)` fills in: it gets buffers and returns a statement or a call.

    `shape` is one shape, or a list of shapes for several outputs, and `dtype` one type or a list;
    without it, the outputs have the type of the first input.

        C = te.extern((m, n), [A, B], lambda ins, outs: te.call_extern("my_gemm", *ins, *outs, m))
    """
    _require_tensors(name, inputs)
    several = _is_nested(shape)
    shapes = one_or_several(shape) if several else (shape,)
    op = Extern(name, inputs, fbody)
    dtypes = _dtypes(dtype, len(shapes), inputs, name)
    names = [name] if len(shapes) == 1 else [f"{name}_{n}" for n in range(len(shapes))]
    op.outputs = tuple(
        Tensor(n, d, shape_of(s, n), op) for n, d, s in zip(names, dtypes, shapes, strict=True)
    )
    return op.outputs if several else op.outputs[0]


def call_extern(symbol: str, *args: Any, dtype: object = "int32") -> Expr:
    """A call of the C function `symbol`; buffers and tensors are passed by their address."""
    if not _SYMBOL.match(symbol):
        raise UserError(f"{symbol!r} cannot be the name of a C function")
    result, name = DType.of(dtype), f"extern.{symbol}"
    known = INTRINSICS.get(name)
    if known is None:
        known = declare(name, None, "any", lambda _: result, pure=False, doc="a C function")
    if known.result(()) is not result:
        raise UserError(
            f"C function {symbol} is called for {result}",
            reason=f"it was called for {known.result(())} before",
        )
    return Call(name, tuple(_argument(a) for a in args), result)


def _argument(value: Any) -> Expr:
    if isinstance(value, Buffer):
        return address_of(Load(value, (const(0),) * value.ndim))
    return as_expr(value)


def _is_nested(shape: Any) -> bool:
    parts = one_or_several(shape)
    return bool(parts) and isinstance(parts[0], tuple | list)


def _require_tensors(name: str, inputs: Sequence[Any]) -> None:
    for value in inputs:
        if not isinstance(value, Tensor):
            raise UserError(f"te.extern {name} has the input {value!r}, which is no tensor")


def _dtypes(dtype: Any, count: int, inputs: Sequence[Tensor], name: str) -> list[DType]:
    if isinstance(dtype, list | tuple):
        dtypes = [DType.of(d) for d in one_or_several(dtype)]
        if len(dtypes) != count:
            raise UserError(f"te.extern {name} has {count} shapes but {len(dtypes)} types")
        return dtypes
    if dtype is None and not inputs:
        raise UserError(f"te.extern {name} has no element type", remedy="give it as dtype=…")
    return [DType.of(inputs[0].dtype if dtype is None else dtype)] * count
