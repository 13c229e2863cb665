"""The state of writing nodes: names of values, constants, and dimensions as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.element_types import onnx_number
from tilewright.frontends.onnx.package import onnx_package
from tilewright.frontends.onnx.writing.table import rule_of
from tilewright.graph import Array, Binding, Builder, Call, Read, TensorType, Value
from tilewright.ir import Binary, Const, DType, Expr, Unary, Var, as_expr
from tilewright.support.errors import UserError

#: Operators on sizes that are one node; not quotients, which ONNX rounds towards zero.
_SIZES: Final = {"add": "Add", "sub": "Sub", "mul": "Mul", "min": "Min", "max": "Max"}

#: Element types that are newer than the version of the operators that is written.
_NEWER: Final = frozenset(["int2", "uint2", "float4_e2m1fn", "float8_e8m0fnu"])


class Writer:
    """Collects the nodes and constants of one graph."""

    def __init__(self) -> None:
        self.onnx = onnx_package()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.domains: set[str] = set()
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        #: Vectors of integers that were written already.
        self._numbers: dict[tuple[int, ...], str] = {}
        #: Where a symbolic dimension can be read: a tensor's name and an axis, or a number's name.
        self._places: dict[Var, tuple[str, int | None]] = {}
        self._sizes: dict[Expr, str] = {}

    # ---- names ----------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A name that is not used yet."""
        base, name, count = hint or "v", hint or "v", 1
        while name in self._taken:
            name, count = f"{base}_{count}", count + 1
        self._taken.add(name)
        return name

    def name(self, value: Value) -> str:
        """The name of a value; a constant is written when it is first used."""
        if value not in self._names and value.constant is not None:
            self._names[value] = self.constant(value.constant, value.dtype, value.name)
        return self._names[value]

    def define(self, value: Value, name: str | None = None) -> str:
        """A name for a value that a node computes or the caller gives."""
        self._names[value] = made = self.fresh(value.name) if name is None else name
        if isinstance(value.type, TensorType):
            _require_known(value.type.dtype, value.name)
            for axis, dim in enumerate(value.type.shape):
                if isinstance(dim, Var):
                    self._places.setdefault(dim, (made, axis))
        return made

    def constant(self, array: Array, dtype: DType | None = None, hint: str = "c") -> str:
        """The name of a constant."""
        name = self.fresh(hint)
        _require_known(dtype or DType.of(array.dtype), hint)
        self.initializers.append(_tensor(self.onnx, name, array, dtype or DType.of(array.dtype)))
        return name

    def numbers(self, values: Sequence[int]) -> str:
        """The name of a vector of integers, shared by all that need the same."""
        key = tuple(int(v) for v in values)
        if key not in self._numbers:
            self._numbers[key] = self.constant(np.array(key, np.int64), hint="numbers")
        return self._numbers[key]

    def scalar(self, value: float, dtype: DType) -> str:
        """The name of one number."""
        return self.constant(np.asarray(value, dtype.numpy), dtype, "number")

    # ---- nodes ----------------------------------------------------------------------------------

    def node(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str] | str = "", **attrs: Any
    ) -> str:
        """Add a node, of ONNX's own operators unless `domain` is given; the name of its first
        result, a fresh one unless given."""
        domain: str = attrs.pop("domain", "")
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        names = [n or self.fresh(kind.lower()) for n in names]
        kept = list(inputs)
        while kept and not kept[-1]:
            kept.pop()
        given = {k: v for k, v in attrs.items() if v is not None}
        made = self.onnx.helper.make_node(kind, kept, names, domain=domain, **given)
        self.nodes.append(made)
        self.domains.add(domain)
        return names[0]

    def arguments(self, call: Call) -> list[str]:
        """The names of a call's operands; empty for those that are left out."""
        return ["" if a is None else self.name(a) for a in call.args]

    def binding(self, binding: Binding) -> None:
        """Write the nodes of a binding."""
        expr = binding.expr
        if isinstance(expr, Read):
            return self._read(expr)
        if not isinstance(expr, Call):
            raise _unwritten(type(expr).__name__, binding, "control flow is not written")
        rule = rule_of(expr.op.name)
        if rule is not None:
            # Operands first: dimensions that results define are read from these.
            self.arguments(expr)
            return rule(self, expr, [self.define(v) for v in binding.outputs])
        if expr.op.how != "decompose":
            raise _unwritten(expr.op.name, binding, "ONNX has no such operator")
        return self._expanded(binding, expr)

    def _expanded(self, binding: Binding, call: Call) -> None:
        builder = Builder()
        for value in call.args:
            if value is not None:
                builder.own(value)
        builder.output(*call.op.expand(builder, call.args, call.attrs))
        function = builder.function()
        for inner in function.body:
            self.binding(inner)
        for value, made in zip(binding.outputs, function.results, strict=True):
            self.define(value, self.name(made))

    def _read(self, read: Read) -> None:
        flat = self.node("Reshape", [self.name(read.value), self.numbers([-1])])
        flat = self.node("Cast", [flat], to=onnx_number(DType.of("int64")))
        for number, dim in enumerate(read.dims):
            where = self.numbers([number])
            self._sizes[dim] = self.node("Gather", [flat, where], axis=0)

    # ---- dimensions -----------------------------------------------------------------------------

    def dims(self, dims: Sequence[Any]) -> str:
        """The name of a vector of sizes, some of which may be symbolic."""
        sizes = [as_expr(d) for d in dims]
        if all(isinstance(s, Const) for s in sizes):
            return self.numbers([int(s.value) for s in sizes if isinstance(s, Const)])
        return self.node("Concat", [self._size(s) for s in sizes], axis=0)

    def _size(self, size: Expr) -> str:
        """The name of a vector of one size."""
        if isinstance(size, Const):
            return self.numbers([int(size.value)])
        if size not in self._sizes:
            self._sizes[size] = self._written_size(size)
        return self._sizes[size]

    def _written_size(self, size: Expr) -> str:
        if isinstance(size, Var) and size in self._places:
            name, axis = self._places[size]
            assert axis is not None
            return self.node("Shape", [name], start=axis, end=axis + 1)
        if isinstance(size, Unary) and size.op == "neg":
            return self.node("Neg", [self._size(size.a)])
        if isinstance(size, Binary) and size.op in _SIZES:
            return self.node(_SIZES[size.op], [self._size(o) for o in size.operands])
        if isinstance(size, Binary) and size.op in ("floordiv", "floormod"):
            a, b = (self._size(o) for o in size.operands)
            rest = self.node("Mod", [a, b])
            if size.op == "floormod":
                return rest
            return self.node("Div", [self.node("Sub", [a, rest]), b])
        raise UserError(
            f"cannot write the size {size} to ONNX",
            remedy="fix the shapes of the inputs with shapes=",
        )


def _require_known(dtype: DType, name: str) -> None:
    if dtype.name in _NEWER:
        raise UserError(
            f"cannot write {name} to ONNX",
            reason=f"{dtype.name} is newer than the version that is written",
        )


def _unwritten(name: str, binding: Binding, reason: str) -> UserError:
    return UserError(
        f"cannot write {name} to ONNX ({binding.label})",
        reason=reason,
        remedy="keep the graph: tw.compile takes it, and a compiled model can be saved",
    )


def static_ints(call: Call, name: str) -> list[int] | None:
    """An attribute that ONNX needs as integers; None where it is empty."""
    found = [as_expr(v) for v in call.attrs[name]]
    if not all(isinstance(v, Const) for v in found):
        raise UserError(
            f"cannot write {call.op.name} to ONNX",
            reason=f"its {name} depend on symbolic sizes",
            remedy="fix the shapes of the inputs with shapes=",
        )
    return [int(v.value) for v in found if isinstance(v, Const)] or None


def _tensor(onnx: Any, name: str, array: Array, dtype: DType) -> Any:
    proto = onnx.TensorProto(name=name, data_type=onnx_number(dtype), dims=array.shape)
    if dtype.name == "string":
        proto.string_data.extend(str(s).encode() for s in array.ravel())
    elif dtype.bits < 8 and not dtype.is_bool:
        proto.raw_data = _packed(array, dtype.bits)
    else:
        little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.kind in "iuf" else array
        proto.raw_data = np.ascontiguousarray(little).tobytes()
    return proto


def _packed(array: Array, bits: int) -> bytes:
    """Numbers of a few bits, the first in the lowest bits of a byte."""
    per_byte = 8 // bits
    flat = array.ravel().astype(np.int8).view(np.uint8) & np.uint8(2**bits - 1)
    flat = np.concatenate([flat, np.zeros(-flat.size % per_byte, np.uint8)])
    parts = flat.reshape(-1, per_byte) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=1).astype(np.uint8).tobytes()
