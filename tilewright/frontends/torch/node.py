"""The interface of nodes for converters: arguments by name, type of the result, a builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.frontends.common.padding import dim_number, simplified
from tilewright.frontends.torch.package import is_list
from tilewright.frontends.torch.tensors import element_type, is_complex
from tilewright.graph import Builder, Dim, Value
from tilewright.ir import DType, Expr, as_expr, minimum
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.frontends.torch.importer import Importer


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers: its real and its imaginary parts."""

    real: Value
    imag: Value


class Node:
    """One call of an operator."""

    def __init__(
        self,
        importer: Importer,
        name: str,
        args: dict[str, Any],
        metas: dict[str, Any],
        result: Any,
    ) -> None:
        self._importer, self._args, self._metas = importer, args, metas
        #: The name of the operator with its overload.
        self.op: Final = name
        #: torch's metadata of the result: a tensor without elements, or several.
        self.result: Final = result
        self.builder: Final[Builder] = importer.builder

    # ---- arguments ------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        """An argument: a value, a number, a dimension, a list of such, or None."""
        if name not in self._args:
            raise UserError(f"{self.op} has no argument {name}", remedy=f"it has {[*self._args]}")
        return self._args[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument that only some overloads have, or that may be None."""
        found = self._args.get(name)
        return default if found is None else found

    def __contains__(self, name: str) -> bool:
        return name in self._args

    @property
    def arguments(self) -> list[Any]:
        """All arguments in order."""
        return list(self._args.values())

    def meta(self, name: str) -> Any:
        """torch's metadata of an argument: a tensor without elements, or a number."""
        return self._metas[name]

    def tensor(self, name: str, dtype: object = None) -> Value:
        """An argument that is a tensor, converted to `dtype` if that is given."""
        found = self[name]
        if isinstance(found, Complex):
            raise UserError(
                f"{self.op} of complex numbers",
                reason="they can only be added, multiplied and seen as real numbers",
            )
        made = found if isinstance(found, Value) else self.number(found, dtype)
        return made if dtype is None else self.cast(made, dtype)

    def maybe(self, name: str, dtype: object = None) -> Value | None:
        """A tensor that may be missing."""
        return None if self._args.get(name) is None else self.tensor(name, dtype)

    def tensors(self, name: str, dtype: object = None) -> list[Value]:
        """An argument that is a list of tensors."""
        return [v if dtype is None else self.cast(v, dtype) for v in self[name]]

    def dims(self, name: str) -> list[Dim]:
        """An argument that is a list of sizes; one for all of them is a list of one."""
        found = self[name]
        return [self.dim_of(d) for d in (found if is_list(found) else [found])]

    def dim(self, name: str) -> Dim:
        """An argument that is a size."""
        return self.dim_of(self[name])

    def dim_of(self, given: Any) -> Dim:
        """A size: a number, an expression, or the element of a tensor that is read at run time."""
        if isinstance(given, Value):
            return self.builder.read(given)[0]
        return dim_number(given) if isinstance(given, Expr) else int(given)

    def axis(self, name: str, rank: int | None = None, default: int | None = None) -> int:
        """An argument that is an axis, counted from the front."""
        found = self.get(name, default)
        rank = self.rank("self") if rank is None else rank
        return int(found) % max(rank, 1)

    def axes(self, name: str, rank: int | None = None) -> list[int]:
        """An argument that is some axes; all where it is None or empty."""
        found = self.get(name)
        rank = self.rank("self") if rank is None else rank
        if found is None or found == [] or found == ():
            return list(range(rank))
        found = found if is_list(found) else [found]
        return [int(a) % max(rank, 1) for a in found] if rank else []

    def rank(self, name: str) -> int:
        """How many dimensions a tensor has."""
        found = self[name]
        return (found.real if isinstance(found, Complex) else found).ndim

    # ---- element types --------------------------------------------------------------------------

    def dtype_of(self, name: str) -> DType | None:
        """An argument that is an element type."""
        found = self.get(name)
        return None if found is None else element_type(found)

    @property
    def dtype(self) -> DType:
        """The element type of the result, or of the first one."""
        return element_type(self.results[0].dtype)

    @property
    def results(self) -> list[Any]:
        """torch's metadata of all results."""
        result = self.result
        return list(result) if is_list(result) else [result]

    @property
    def is_complex(self) -> bool:
        """Whether the first result has complex numbers."""
        return is_complex(self.results[0].dtype)

    @property
    def shape(self) -> list[Dim]:
        """The shape of the result, or of the first one."""
        return self.shape_of(self.results[0])

    def shape_of(self, meta: Any) -> list[Dim]:
        """The shape that torch gives a tensor."""
        return [self._importer.symbols.dim(d) for d in meta.shape]

    def size(self, expression: Any) -> Dim:
        """A size that torch has as an expression of sympy."""
        return self._importer.symbols.dim(expression)

    def promoted(self, *names: str) -> DType:
        """The common type to which torch promotes these arguments."""
        rules: Any = import_module("torch._prims_common")
        metas = [self._metas[n] for n in names if self._metas.get(n) is not None]
        kind = rules.ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
        return element_type(rules.elementwise_dtypes(*metas, type_promotion_kind=kind)[1])

    # ---- values ---------------------------------------------------------------------------------

    def cast(self, value: Value, dtype: object) -> Value:
        """A value in another element type, if it is not in that already."""
        to = DType.of(dtype)
        return value if value.dtype is to else self.builder.cast(value, dtype=to)

    def number(self, given: Any, dtype: object = None) -> Value:
        """A number, a size or a value as a value."""
        if isinstance(given, Value):
            return given if dtype is None else self.cast(given, dtype)
        if isinstance(given, Expr):
            made = self.builder.dims(elements=[given], shape=[], dtype="int64")
            return made if dtype is None else self.cast(made, dtype)
        return self.constant(given, dtype)

    def constant(self, given: Any, dtype: object = None) -> Value:
        """A constant; integers wrap around if the type does not hold them, as in torch."""
        if dtype is None:
            return self.builder.constant(np.asarray(given))
        to = DType.of(dtype)
        if to.is_integer and isinstance(given, int):
            low, high = int(to.min_value), int(to.max_value)
            given = (given - low) % (high - low + 1) + low
        return self.builder.constant(np.asarray(given).astype(to.numpy), to)

    def like(self, given: Any, value: Value) -> Value:
        """A number in the element type of a value."""
        return self.number(given, value.dtype)

    def operands(self, *names: str, dtype: object = None) -> list[Value]:
        """Arguments as values of one type: the given one, or that to which torch promotes them."""
        to = self.promoted(*names) if dtype is None else DType.of(dtype)
        return [self.tensor(n, to) for n in names]

    def expanded(self, value: Value, shape: Sequence[Dim]) -> Value:
        """A value broadcast to a shape."""
        same = value.ndim == len(shape) and all(
            a is as_expr(b) for a, b in zip(value.shape, shape, strict=True)
        )
        return value if same else self.builder.expand(value, shape=list(shape))

    def full(self, given: Any, shape: Sequence[Dim], dtype: object) -> Value:
        """A tensor of one number."""
        return self.builder.full(self.number(given, dtype), shape=list(shape))

    def joined_batch(self, a: Value, b: Value) -> list[Dim]:
        """The broadcast batch dimensions (all but the last two) of two tensors of matrices."""
        blanks = [self.full(0, v.shape[:-2], "uint8") for v in (a, b)]
        return list(self.builder.add(*blanks).shape)

    def shape_of_least(self, a: Dim, b: Dim) -> Dim:
        """The smaller of two sizes."""
        return simplified(minimum(as_expr(a), as_expr(b)))

    # ---- graphs inside --------------------------------------------------------------------------

    def body(self, graph: Any) -> Callable[..., list[Any]]:
        """A graph that is an argument, as a function that converts it for some operands."""
        return lambda *args: self._importer.graph(graph, args)


def known_size(dim: Dim) -> int:
    """A size that determines the number of operators, and so must be a number."""
    size = simplified(dim)
    if not isinstance(size, int):
        raise UserError(f"the size {dim} must be known", remedy="give shapes as numbers")
    return size
