"""Lists of tensors that loops fill one by one: here one tensor with an additional first axis.

The elements of a list have one shape. It may be known only when the first element is written; until
then a list has no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.frontends.common.operands import Operands
from tilewright.graph import Dim, Value
from tilewright.ir import DType
from tilewright.support.errors import UserError


@dataclass(frozen=True)
class TensorList:
    """`data` has the elements along its first axis; None where their shape is not known yet."""

    dtype: DType
    count: Dim
    #: The shape of an element as far as it is known: -1 for an extent that is not.
    shape: tuple[Dim, ...] | None
    data: Value | None = None

    def filled(self, n: Operands, like: Value | None = None) -> TensorList:
        """The list with a tensor: of zeros, where nothing was written."""
        if self.data is not None:
            return self
        shape: Sequence[Dim] | None = None if like is None else like.shape
        if shape is None:
            shape = self.shape
        if shape is None or any(isinstance(d, int) and d < 0 for d in shape):
            raise UserError("the shape of a list's elements is not known")
        zero = n.constant("" if self.dtype.name == "string" else 0, self.dtype)
        data = n.builder.full(zero, shape=[self.count, *shape])
        return replace(self, data=data, shape=tuple(shape))

    def tensor(self, n: Operands) -> Value:
        """All elements along a new first axis."""
        found = self.filled(n).data
        assert found is not None
        return found

    def with_item(self, n: Operands, index: Value, item: Value) -> TensorList:
        """The list with another element at an index."""
        data = self.filled(n, item).tensor(n)
        place = n.builder.reshape(index, shape=[1, 1])
        item = n.builder.reshape(item, shape=[1, *item.shape])
        written = n.builder.scatter_nd(data, n.builder.cast(place, dtype="int64"), item)
        return replace(self, data=written, shape=tuple(data.shape[1:]))

    def item(self, n: Operands, index: Value) -> Value:
        """One element."""
        return n.builder.gather(self.tensor(n), n.builder.reshape(index, shape=[]), axis=0)

    def with_last(self, n: Operands, item: Value) -> TensorList:
        """The list with an element more."""
        new = n.builder.unsqueeze(item, axes=[0])
        if self.data is not None:
            new = n.builder.concat(self.data, new, axis=0)
        return TensorList(self.dtype, new.shape[0], tuple(item.shape), new)

    def without_last(self, n: Operands) -> tuple[TensorList, Value]:
        """The list without its last element, and that element."""
        data = self.tensor(n)
        last = n.builder.index(data, -1)
        rest = n.builder.slice(data, starts=[0], ends=[-1], axes=[0])
        return TensorList(self.dtype, rest.shape[0], self.shape, rest), last
