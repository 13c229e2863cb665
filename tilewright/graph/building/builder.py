"""Building graphs in Python.

    b = Builder("main")
    x = b.input("x", "f32", ("n", 3, 224, 224))
    y = b.relu(b.conv2d(x, weights, strides=[2, 2]))
    b.output(y)
    module = b.build()

Every operator is a method; arrays and numbers become constants; the usual operators work on
values. Types are inferred at each call, and a mismatch is an error there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.graph.building.control import ControlFlow
from tilewright.graph.ir import Array, Binding, Call, Function, Graph, Module, Node, Read, Value
from tilewright.graph.ir.op import OpDef, find_op
from tilewright.graph.ir.types import TensorType, Type, dims_of, dtype_of
from tilewright.graph.sizes.naturals import mark_signed
from tilewright.ir import DType, Expr, Var
from tilewright.support.errors import TilewrightError, UserError


class Builder(ControlFlow):
    """Collects the bindings of one function; `graph` opens one inside it."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        #: The origin of the next bindings, such as a node of a model; shown in messages.
        self.origin = ""
        self._blocks = [_Block()]
        self._values: list[Value] = []
        self._dims: dict[str, Var] = {}

    # ---- inputs ---------------------------------------------------------------------------------

    def dim(self, name: str) -> Var:
        """The symbolic dimension of this name."""
        return self._dims.setdefault(name, Var(name))

    def tensor_type(self, dtype: object, shape: Sequence[Any] = ()) -> TensorType:
        """A type whose symbolic dimensions are given by name."""
        return TensorType(dtype, [self.dim(d) if isinstance(d, str) else d for d in shape])

    def input(self, name: str, dtype: object, shape: Sequence[Any] | None = None) -> Value:
        """A parameter: a tensor of this element type and shape, or a value of any `Type`."""
        type_ = dtype if isinstance(dtype, Type) else self.tensor_type(dtype, shape or ())
        value = self.own(Value(name, type_))
        self._blocks[-1].params.append(value)
        return value

    def constant(self, value: Any, dtype: object = None, name: str = "c") -> Value:
        """A constant from an array, a list or a number; of `dtype` where it is given."""
        given = None if dtype is None else dtype_of(dtype)
        array = _as_array(value, given)
        element = given or dtype_of(array.dtype)
        return self.own(Value(name, TensorType(element, array.shape), array))

    # ---- operators ------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        op = find_op(name)

        def emit(*args: Any, **attrs: Any) -> Any:
            return self.emit(op, *args, **attrs)

        return emit

    def emit(self, op: OpDef | str, *args: Any, name: str = "", **attrs: Any) -> Any:
        """Bind a call of an operator; its result, or a tuple where there are several."""
        results = self.emit_all(op, args, attrs, [name] if name else ())
        return results[0] if len(results) == 1 else results

    def emit_all(
        self, op: OpDef | str, args: Sequence[Any], attrs: dict[str, Any], names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        """Bind a call of an operator; all of its results, named by `names` as far as these go."""
        op = find_op(op) if isinstance(op, str) else op
        try:
            operands, attrs = op.bind(self._operands(args), attrs)
            types = op.infer(operands, attrs)
        except TilewrightError as error:
            raise self._located(error, op, args, attrs) from None
        outputs = self.bind(Call(op, operands, attrs), types, names or [op.name])
        self._propagate(op, operands, attrs, outputs)
        return outputs

    def _propagate(
        self,
        op: OpDef,
        operands: Sequence[Value | None],
        attrs: dict[str, Any],
        outputs: Sequence[Value],
    ) -> None:
        for value, known in zip(outputs, op.propagate(operands, attrs), strict=False):
            value.known = known

    def read(self, value: Value, hint: str = "d", *, natural: bool = False) -> list[Expr]:
        """The elements of a small integer tensor as dimensions that later calls can use.

        Elements that are known stay as they are; others are read when the program runs. With
        `natural`, they cannot be negative, whatever the inputs are, as with counts.
        """
        if value.known is not None:
            return list(value.known.ravel())
        size = value.tensor.size
        if size is None or not value.dtype.is_integer:
            raise UserError(
                f"cannot read dimensions from {value}", reason="its size must be known, and integer"
            )
        names = [hint] if size == 1 else [f"{hint}{k}" for k in range(size)]
        dims = [Var(n) for n in names]
        if dims:
            self.bind_read(value, dims, natural=natural)
        return list[Expr](dims)

    def name_dims(self, exprs: Sequence[Expr], hint: str = "d") -> tuple[Value, list[Var]]:
        """Named dimensions for long expressions: these are stored in a tensor and read from it."""
        value = self.emit("dims", elements=exprs, shape=[len(exprs)], dtype="int64", name=hint)
        named = [Var(f"{hint}{k}") for k in range(len(exprs))]
        mark_signed(named)
        self.bind(Read(value, named), (), ())
        self._blocks[-1].define(named)
        return value, named

    def bind_read(self, value: Value, dims: Sequence[Var], *, natural: bool = False) -> None:
        """Bind these dimensions to the elements of `value`."""
        if not natural:
            mark_signed(dims)
        self.bind(Read(value, dims), (), ())
        self._blocks[-1].define(dims)
        self._blocks[-1].read.append(value)
        if len(dims) == value.tensor.size:
            value.known = np.array([*dims, None], object)[:-1].reshape(value.tensor.static_shape)

    def index(self, value: Value, index: Any) -> Value:
        """`value[index]`: integers, slices and `...`, as in NumPy."""
        from tilewright.graph.building.indexing import apply_index

        return apply_index(self, value, index)

    # ---- binding --------------------------------------------------------------------------------

    def bind(self, expr: Node, types: Sequence[Type], names: Sequence[str]) -> tuple[Value, ...]:
        """Bind any expression to fresh values of these types."""
        hints = [*names, *([names[-1]] * (len(types) - len(names)) if names else ())]
        outputs = tuple(self.own(Value(n, t)) for n, t in zip(hints, types, strict=False))
        self._blocks[-1].body.append(Binding(outputs, expr, self.origin))
        return outputs

    def bind_made(self, binding: Binding) -> None:
        """Add a binding that was made elsewhere."""
        for value in binding.outputs:
            self.own(value)
        self._blocks[-1].body.append(binding)

    def own(self, value: Value) -> Value:
        """Let operators on `value` be emitted by this builder until it is finished."""
        value.builder = self
        self._values.append(value)
        self._blocks[-1].define(dims_of(value.type))
        return value

    def retype(self, value: Value, type_: Type) -> None:
        """Give a value that was just bound another type, whose dimensions have names."""
        value.type = type_
        self._blocks[-1].define(dims_of(type_))

    def _operands(self, args: Sequence[Any]) -> list[Value | None]:
        like = next((a.dtype for a in args if isinstance(a, Value) and _is_tensor(a)), None)
        return [self._operand(a, like) for a in args]

    def _operand(self, arg: Any, like: DType | None) -> Value | None:
        if arg is None or isinstance(arg, Value):
            return arg
        plain = isinstance(arg, bool | int | float)
        return self.constant(arg, like if plain else None)

    def _located(
        self, error: TilewrightError, op: OpDef, args: Sequence[Any], attrs: dict[str, Any]
    ) -> TilewrightError:
        from tilewright.graph.text.printer import call_text

        origin = f"    from {self.origin}" if self.origin else ""
        text = call_text(op.name, args, attrs)
        lines = [f"    {text}", origin, error.listing]
        return type(error)(
            error.what,
            reason=error.reason,
            remedy=error.remedy,
            listing="\n".join(line for line in lines if line),
        )

    # ---- results --------------------------------------------------------------------------------

    def output(self, *values: Any, names: Sequence[str] = ()) -> None:
        """Add results, under names that callers use (by default, those of the values)."""
        made = [self.as_value(v) for v in values]
        self._blocks[-1].results.extend(made)
        self._blocks[-1].names.extend(names or [""] * len(made))

    @property
    def results(self) -> list[Value]:
        """The results so far."""
        return self._blocks[-1].results

    def as_value(self, value: Any) -> Value:
        """A value as it is; an array or a number as a constant."""
        return value if isinstance(value, Value) else self.constant(value)

    def function(self) -> Function:
        """The finished function."""
        block = self._blocks[0]
        for value in self._values:
            value.builder = None
        named = [n or r.name for n, r in zip(block.names, block.results, strict=True)]
        # Names are kept apart from the values, which passes replace.
        return Function(self.name, block.params, block.body, block.results, named)

    def build(self) -> Module:
        """A module with this function alone."""
        return Module([self.function()])

    def open_block(self) -> None:
        """Let later bindings go into a graph inside the current one."""
        self._blocks.append(_Block())

    def close_block(self) -> Graph:
        """The innermost graph, finished."""
        block = self._blocks.pop()
        for value in block.read:
            # Elements that were read inside are not known outside.
            value.known = None
        return Graph(block.params, block.body, block.results)

    def visible_dims(self) -> set[Var]:
        """The symbolic dimensions that are defined so far, in the current graph and around it."""
        return {d for b in self._blocks for d in b.dims}


class _Block:
    """A graph being filled."""

    def __init__(self) -> None:
        self.params: list[Value] = []
        self.body: list[Binding] = []
        self.results: list[Value] = []
        self.names: list[str] = []
        self.dims: set[Var] = set()
        self.read: list[Value] = []

    def define(self, dims: Iterable[Var]) -> None:
        self.dims.update(dims)


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def _as_array(value: Any, dtype: DType | None) -> Array:
    if dtype is not None:
        return np.asarray(value, dtype.numpy)
    array = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic):
        return array
    # Python's floats are float32 here, as everywhere in Tilewright.
    return array.astype(np.float32) if array.dtype == np.float64 else array
