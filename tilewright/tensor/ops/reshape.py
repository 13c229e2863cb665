"""The same elements, in order, in another shape.

Dimensions are matched in groups that hold the same elements, so that an extent that stays costs no
division: (n, 3, 4) to (n, 12) touches only the 3, 4 and the 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.ir import Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.extents import is_one, known, product, row_major


class _Group(NamedTuple):
    """Dimensions of the source and of the result that hold the same elements."""

    source: list[Any]
    result: list[Any]

    @property
    def fits(self) -> bool:
        """Whether both hold equally many, as far as is known."""
        a, b = self.sizes
        return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)

    @property
    def sizes(self) -> tuple[Any, Any]:
        return product(self.source), product(self.result)


def reshape(x: te.Tensor, shape: Sequence[Any], name: str = "reshape") -> te.Tensor:
    """`x` in another shape; one extent may be -1 and takes what is left."""
    source = [known(e) for e in x.shape]
    wanted = _without_wildcard(x, [known(e) for e in shape], name)
    groups = _groups(source, wanted)
    for group in groups:
        if all(isinstance(s, int) for s in group.sizes) and not group.fits:
            raise _wrong_size(name, x, shape)

    def element(*i: Expr) -> Expr:
        indices: list[Any] = []
        at = 0
        for group in groups:
            indices += _source_indices(group, i[at : at + len(group.result)])
            at += len(group.result)
        return x[tuple(indices)]

    return te.compute(wanted, element, name=name)


def _source_indices(group: _Group, indices: Sequence[Expr]) -> list[Any]:
    """Where in the source the element at `indices` of the result is."""
    if len(group.source) == len(group.result) == 1:
        return list(indices)
    position = row_major(indices, group.result)
    found: list[Any] = []
    for n, extent in enumerate(group.source):
        below = product(group.source[n + 1 :])
        index = position if is_one(below) else position // below
        outermost = all(is_one(e) for e in group.source[:n])
        found.append(const(0) if is_one(extent) else index if outermost else index % extent)
    return found


def _groups(source: list[Any], result: list[Any]) -> list[_Group]:
    groups: list[_Group] = []
    while source or result:
        group, source, result = _first_group(source, result)
        groups.append(group)
    return groups


def _first_group(source: list[Any], result: list[Any]) -> tuple[_Group, list[Any], list[Any]]:
    """The fewest leading dimensions of both that hold the same; all of them where none do."""
    m, n = min(1, len(source)), min(1, len(result))
    while not (group := _Group(source[:m], result[:n])).fits:
        a, b = group.sizes
        if not isinstance(a, int) or not isinstance(b, int):
            return _Group(source, result), [], []
        m, n = (m + 1, n) if a < b else (m, n + 1)
        if m > len(source) or n > len(result):
            return _Group(source, result), [], []
    return group, source[m:], result[n:]


def _without_wildcard(x: te.Tensor, shape: list[Any], name: str) -> list[Any]:
    """-1 replaced by what the other extents leave of the size of `x`."""
    wild = [n for n, e in enumerate(shape) if isinstance(e, int) and e == -1]
    if len(wild) > 1:
        raise UserError(f"{name} has more than one -1 in its shape {shape}")
    if not wild:
        return shape
    left, others = _crossed_out(
        [known(e) for e in x.shape], shape[: wild[0]] + shape[wild[0] + 1 :]
    )
    total, rest = product(left), product(others)
    if isinstance(total, int) and isinstance(rest, int) and (rest == 0 or total % rest):
        raise _wrong_size(name, x, shape)
    return [*shape[: wild[0]], total if is_one(rest) else total // rest, *shape[wild[0] + 1 :]]


def _crossed_out(a: list[Any], b: list[Any]) -> tuple[list[Any], list[Any]]:
    """Both without the extents that stand in both, so that symbolic ones need no division."""
    left, others = list(a), list[Any]()
    for extent in b:
        match = next((n for n, e in enumerate(left) if _Group([e], [extent]).fits), None)
        if match is None:
            others.append(extent)
        else:
            del left[match]
    return left, others


def _wrong_size(name: str, x: te.Tensor, shape: Sequence[Any]) -> UserError:
    dims = ", ".join(str(known(e)) for e in shape)
    return UserError(
        f"{name} cannot put {x.name} into the shape [{dims}]",
        reason=f"it has [{', '.join(map(str, x.shape))}]",
        remedy="keep the number of elements",
    )
