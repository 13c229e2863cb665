"""Tensors, and the base class of the definitions of their elements.

A `Tensor` is a buffer that knows its definition, so the loads in a definition's body are the only
links between tensors. Functions get plain buffers instead (`te.function`) and keep no definition
alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

from tilewright.ir import (
    Buffer,
    DType,
    Expr,
    Load,
    Span,
    Var,
    as_expr,
    as_extent,
    cast,
    loads_in,
)
from tilewright.support.errors import UserError
from tilewright.tensor.te.operand import Operand, one_or_several
from tilewright.tensor.te.source import caller_span

INDEX: Final = DType.of("int64")
Extent = int | Expr
Shape = Sequence[Extent] | Extent


class Definition:
    """How tensors are computed: `inputs` are the tensors it reads, `outputs` those it defines."""

    kind = "definition"

    def __init__(
        self, name: str, axes: tuple[Var, ...] = (), inputs: Iterable[Tensor] = ()
    ) -> None:
        self.name, self.axes, self.inputs = name, axes, tuple(inputs)
        self.outputs: tuple[Tensor, ...] = ()
        self.span: Span | None = caller_span()

    def where(self) -> str:
        """`te.compute C, model.py:12`: what and where it is, for messages."""
        return f"te.{self.kind} {self.name}" + (f", {self.span}," if self.span else "")

    def __repr__(self) -> str:
        reads = ", ".join(t.name for t in self.inputs)
        return f"te.{self.kind}({self.name}" + (f", reads {reads})" if reads else ")")


class Placeholder(Definition):
    """A tensor that is given."""

    kind = "placeholder"


class Tensor(Operand, Buffer):
    """An array that is given or defined; `A[i, j]` is one of its elements."""

    __slots__ = ("op",)

    op: Definition

    def __init__(self, name: str, dtype: object, shape: Iterable[Expr], op: Definition) -> None:
        Buffer.__init__(self, name, dtype, shape)
        self.op = op

    @property
    def buffer(self) -> Buffer:
        """The buffer that loads of this tensor name: itself."""
        return self

    @property
    def axes(self) -> tuple[Var, ...]:
        """The index variables of its definition; none for a placeholder."""
        return self.op.axes

    def as_expr(self) -> Expr:
        if not self.ndim:
            return self[()]
        indices = ", ".join(f"i{n}" for n in range(self.ndim))
        raise UserError(
            f"tensor {self.name} cannot be used as a number",
            reason=f"it has {self.ndim} dimensions, and operators work on single elements",
            remedy=f"write {self.name}[{indices}] inside te.compute, or use tilewright.ops",
        )

    def __getitem__(self, indices: Any) -> Load:
        given = one_or_several(indices)
        if len(given) != self.ndim:
            raise UserError(
                f"tensor {self.name} cannot be indexed with {len(given)} indices",
                reason=f"its rank is {self.ndim}: {self.dtype}{_dims(self.shape)}",
            )
        return Load(self, tuple(self._index(i) for i in given))

    def _index(self, value: Any) -> Expr:
        expr = as_expr(value)
        if not expr.dtype.is_integer:
            raise UserError(
                f"tensor {self.name} cannot be indexed by `{expr}`",
                reason=f"it is {expr.dtype}",
                remedy="use whole numbers; .astype('int64') makes one of a float",
            )
        return cast(expr, INDEX)

    def __eq__(self, other: object) -> Any:
        """Whole tensors are compared by identity; elements by value."""
        return self is other if isinstance(other, Tensor) and self.ndim else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        whole = isinstance(other, Tensor) and self.ndim
        return self is not other if whole else super().__ne__(other)

    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[NoReturn]:
        raise UserError(f"tensor {self.name} cannot be iterated over", remedy="index it")

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{_dims(self.shape)}, {self.op!r})"


def var(name: str = "n", dtype: object = INDEX) -> Var:
    """A symbolic extent; or, with another type, a scalar to list among a function's inputs."""
    return Var(name, dtype)


def placeholder(shape: Shape, dtype: object = "float32", name: str = "placeholder") -> Tensor:
    """A tensor that will be passed to the function."""
    op = Placeholder(name)
    op.outputs = (Tensor(name, dtype, shape_of(shape, name), op),)
    return op.outputs[0]


def shape_of(shape: Shape, owner: str) -> tuple[Expr, ...]:
    """A shape as index expressions; one extent alone is a shape of one dimension."""
    given: Any = shape
    if not isinstance(given, int | Expr | Iterable):
        raise UserError(f"{owner} has the shape {shape!r}", remedy="give a tuple of extents")
    dims = (shape,) if isinstance(shape, int | Expr) else tuple(shape)
    return tuple(extent_of(d, owner) for d in dims)


def extent_of(value: Any, owner: str) -> Expr:
    """An extent as an index expression that can be known before the function runs."""
    extent = as_extent(value, owner)
    if extent.dtype is not INDEX:
        raise UserError(
            f"{owner} has the extent `{extent}`",
            reason=f"it is {extent.dtype}, but extents are int64",
            remedy="make it with te.var(name), or convert it with .astype('int64')",
        )
    if loads_in(extent):
        raise UserError(
            f"{owner} has the extent `{extent}`",
            reason="it depends on the elements of a tensor",
            remedy="pass the extent as a te.var among the inputs",
        )
    return extent


def tensors_in(exprs: Iterable[Expr], owner: str) -> list[Tensor]:
    """The tensors that the expressions read, each once, in order of appearance."""
    found: dict[Tensor, None] = {}
    for load in (load for e in exprs for load in loads_in(e)):
        if not isinstance(load.buffer, Tensor):
            raise UserError(
                f"{owner} reads buffer {load.buffer.name}",
                reason="it is no tensor",
                remedy="use te.placeholder for what the function is given",
            )
        found.setdefault(load.buffer)
    return list(found)


def _dims(shape: tuple[Expr, ...]) -> str:
    return "[" + ", ".join(str(d) for d in shape) + "]"
