"""Calls in a host program: kernels, views, numbers computed from dimensions, checks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from tilewright.arith import divisor, rough, simplify
from tilewright.graph.fusion.groups import KernelCall
from tilewright.graph.host.memory import Memory, is_read
from tilewright.graph.host.places import BufferPlace, Slot
from tilewright.graph.ir import Binding, Call, Fused, Read, Value
from tilewright.graph.sizes.naturals import is_signed, simplify_size
from tilewright.ir import (
    Assert,
    Buffer,
    Const,
    DType,
    Evaluate,
    Expr,
    Store,
    Var,
    all_of,
    cast,
    const,
    free_vars,
)
from tilewright.ir import Call as CallExpr
from tilewright.support.errors import UserError

_INT32: Final = DType.of("int32")
_NOWHERE: Final = Const(0, "uint64")
_TOO_MANY: Final = 1 << 60
#: Sizes beyond this are refused, before they wrap around.
_TOO_FAR: Final = 1 << 62


class KernelInfo(Protocol):
    """What the caller of a kernel must know of it."""

    #: The name of its code, which kernels may share, and the sizes that are passed to that first.
    @property
    def name(self) -> str: ...

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def messages(self) -> tuple[str, ...]: ...

    def workspace_for(self, numbers: Sequence[Expr]) -> Expr: ...


def call_kernel(m: Memory, kernel: KernelCall, info: KernelInfo, ending: Collection[Value]) -> None:
    """Call a kernel on the places of its values; those in `ending` are not used afterwards."""
    old = _overwritten(m, kernel, ending)
    if old is not None:
        m.reuse_memory(kernel.outputs[0], old)
    else:
        for value in kernel.outputs:
            m.allocate(value)
    given = kernel.arguments()
    args = [m.place(a).address if isinstance(a, Value) else m.expr(a) for a in given]
    size = info.workspace_for([m.expr(n) for n in kernel.numbers])
    workspace, block = _workspace(m, simplify(size))
    name = f"kernel.{kernel.function.name}"
    m.emit(Evaluate(CallExpr(name, (*args, workspace), _INT32)))
    if block is not None:
        m.free(block)


def _overwritten(m: Memory, kernel: KernelCall, ending: Collection[Value]) -> Value | None:
    """The operand that the only result may overwrite."""
    numbers: Sequence[int] = kernel.function.attrs.get("in_place", ())
    for number in numbers:
        value = kernel.inputs[number]
        sharers = [v for v in kernel.inputs if m.roots.get(v, v) is value]
        if value in ending and len(sharers) == 1 and m.may_reuse_memory(kernel.outputs[0], value):
            return value
    return None


def _workspace(m: Memory, size: Expr) -> tuple[Expr, Slot | None]:
    """Memory for one call, with its heap block where the size is known only at run time."""
    if size is const(0):
        return _NOWHERE, None
    if not is_read(size):
        return BufferPlace(m.own_buffer(Buffer("workspace", "uint8", (size,)))).address, None
    place = m.block()
    m.run("heap_take", const(place.number), size)
    return place.address, place.slot


def store_dims(m: Memory, value: Value, call: Call) -> None:
    """Write numbers that are computed from dimensions."""
    buffer = m.buffer(value)
    m.put(value, BufferPlace(buffer))
    shape = value.tensor.static_shape
    for k, element in enumerate(call.attrs["elements"]):
        number = m.expr(element) if isinstance(element, Expr) else const(element)
        m.emit(Store(buffer, _indices(shape, k), cast(number, value.dtype)))


def _indices(shape: Sequence[int], number: int) -> tuple[Expr, ...]:
    indices: list[Expr] = []
    for extent in reversed(shape):
        indices.append(const(number % extent))
        number //= extent
    return tuple(reversed(indices))


def read_dims(m: Memory, node: Read) -> None:
    """Keep the numbers read from a tensor, to be used as dimensions afterwards."""
    for dim, element in zip(node.dims, m.numbers(node.value), strict=True):
        m.dims[dim] = m.cell(element)
        if not is_signed(dim):
            # Sizes that are computed from it are not checked again.
            m.emit(Assert(m.expr(dim) >= 0, f"{dim.name} would be {{}}", (m.expr(dim),)))


def check_dims(m: Memory, binding: Binding) -> None:
    """Stop where the dimensions violate conditions of the operators."""
    calls = binding.expr.graph.body if isinstance(binding.expr, Fused) else [binding]
    for inner in calls:
        if isinstance(inner.expr, Call):
            name = inner.expr.op.name
            for condition, message in inner.expr.op.conditions(inner.expr.args, inner.expr.attrs):
                _require(m, condition, message if name == "require" else f"{name}: {message}")
            for value in inner.outputs:
                _require_sizes(m, value, name)


def _require_sizes(m: Memory, value: Value, name: str) -> None:
    """Stop where a size that was read from a tensor is negative; refuse what no memory holds."""
    # Unless empty, a value has at least the product of the constant factors of its sizes.
    least = math.prod(map(divisor, value.shape))
    if least * value.dtype.itemsize > _TOO_MANY:
        raise UserError(f"no memory can hold {value}", reason=f"it has {least} elements or more")
    for axis, dim in enumerate(value.shape):
        if any(map(is_signed, free_vars(dim))) and m.asks(dim >= 0):
            _require_fits(m, dim, f"{name}: dimension {axis} of the result does not fit 64 bits")
            holds = simplify_size(dim >= 0)
            if not isinstance(holds, Const):
                message = f"{name}: dimension {axis} of the result would be {{}}"
                m.emit(Assert(m.expr(holds), message, (m.expr(dim),)))


def _require_fits(m: Memory, dim: Expr, message: str) -> None:
    """Stop where a size is computed from numbers so large that it wraps around."""
    if isinstance(dim, Var):
        return
    size = rough(m.expr(dim))
    m.emit(Assert(all_of(size > -float(_TOO_FAR), size < float(_TOO_FAR)), message))


def _require(m: Memory, condition: Expr, message: str) -> None:
    """Stop where a condition does not hold, with the message of the first operator that asks."""
    condition = simplify(condition)
    if not m.asks(condition):
        return
    holds = simplify(m.expr(condition))
    if isinstance(holds, Const) and holds.value:
        return
    m.emit(Assert(holds, message.replace("{", "{{").replace("}", "}}")))
