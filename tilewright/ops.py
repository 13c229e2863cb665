"""The operators of graphs as definitions over `te` tensors, for kernels built one by one.

    A, B = te.placeholder((64, 32), name="A"), te.placeholder((32, 48), name="B")
    C = tw.ops.relu(tw.ops.matmul(A, B), name="C")
    kernel = tw.build(te.function([A, B], [C], name="kernel"))

Every operator that is computed by loops is a function here: operands are tensors or numbers,
attributes are keywords, and `name` names the result. It returns one tensor, or a tuple. The
formulas are those that models are compiled from (`graph/ops`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graph import OPS, Binding, Builder, Call, Value, find_op, passes
from tilewright.support.errors import UserError
from tilewright.tensor import te


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    find_op(name)

    def define(*operands: Any, **attrs: Any) -> Any:
        return _define(name, operands, **attrs)

    define.__name__, define.__doc__ = name, OPS[name].doc
    return define


def __dir__() -> list[str]:
    find_op("identity")
    return sorted(n for n, op in OPS.items() if op.how in ("compute", "decompose"))


def _define(op: str, operands: Sequence[Any], name: str = "", **attrs: Any) -> Any:
    builder = Builder()
    args = [_as_value(builder, o) for o in operands]
    builder.output(*builder.emit_all(op, args, attrs))
    tensors = {v: t for v, t in zip(args, operands, strict=True) if isinstance(t, te.Tensor)}
    function = passes.legalize(builder.build()).main
    for binding in function.body:
        tensors |= _defined(op, binding, tensors)
    results = tuple(tensors[v] for v in function.results)
    results = tuple(_renamed(t, name) for t in results) if name else results
    return results[0] if len(results) == 1 else results


def _as_value(builder: Builder, operand: Any) -> Any:
    if isinstance(operand, te.Tensor):
        return builder.input(operand.name, operand.dtype, operand.shape)
    return operand


def _defined(op: str, binding: Binding, tensors: dict[Value, te.Tensor]) -> dict[Value, te.Tensor]:
    """The results that a call of an operator defines."""
    call = binding.expr
    if not isinstance(call, Call) or call.op.how != "compute":
        raise UserError(
            f"{op} has no definition over tensors",
            reason="it needs more than loops over its operands",
            remedy="build a graph with tilewright.graph.Builder, and compile that",
        )
    args = [
        None if a is None else tensors[a] if a in tensors else _number(op, a) for a in call.args
    ]
    results = call.op.define(args, call.attrs, tuple(v.type for v in binding.outputs))
    return dict(zip(binding.outputs, results, strict=True))


def _number(op: str, value: Value) -> te.Tensor:
    if value.constant is None or value.constant.size != 1:
        raise UserError(f"{op} takes tensors and numbers, not {value}", remedy="use a placeholder")
    number = value.constant.reshape(()).item()
    return te.compute(value.shape, lambda *_: te.const(number, value.dtype), name=value.name)


def _renamed(tensor: te.Tensor, name: str) -> te.Tensor:
    made = tensor.op
    if not isinstance(made, te.Compute) or len(made.outputs) > 1:
        raise UserError(f"{tensor!r} cannot be called {name}", reason="it is not one te.compute")
    return te.Compute(name, made.shape, made.axes, made.body, made.attrs).outputs[0]
