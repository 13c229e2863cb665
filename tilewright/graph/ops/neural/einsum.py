"""Einstein sums: products of several tensors, summed over the letters that the result lacks.

    b.einsum(a, b, equation="bij,bjk->bik")

Two operands make one contraction, whatever the order of their dimensions; more are contracted
pairwise from the left. `...` stands for any number of dimensions, which are broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.broadcast import broadcast_index, broadcast_shapes
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: A letter, or the number of a dimension that `...` stands for, counted from the last.
Label = str | int
Labels = tuple[Label, ...]


class Equation(NamedTuple):
    inputs: tuple[Labels, ...]
    output: Labels


@op
def einsum(*xs: Value, equation: str, dtype: DType | None = None) -> Type:
    """The Einstein sum of the operands by `equation`, as in NumPy. The result is in `dtype`, to
    which the operands are converted first, or in their type."""
    require_kind("number", *xs)
    if dtype is None:
        require_same_dtype(*xs)
    parsed = parse(equation, [x.ndim for x in xs])
    extents = _extents(parsed, [x.shape for x in xs])
    return TensorType(dtype or xs[0].dtype, [extents[n] for n in parsed.output])


@einsum.reference
def einsum_reference(*xs: Array, equation: str, dtype: DType | None = None) -> Array:
    result = xs[0].dtype if dtype is None else dtype.numpy
    work = np.float64 if DType.of(result).is_float else result
    operands = [x.astype(work) for x in xs]
    return np.asarray(np.einsum(equation.replace(" ", ""), *operands)).astype(result)


@einsum.compute
def einsum_compute(*xs: te.Tensor, equation: str, dtype: DType | None) -> te.Tensor:
    parsed = parse(equation, [x.ndim for x in xs])
    extents = _extents(parsed, [x.shape for x in xs])
    result = dtype or xs[0].dtype
    work = accumulator(result)
    left, labels = xs[0], parsed.inputs[0]
    rest = list(zip(xs[1:], parsed.inputs[1:], strict=True))
    for n, (right, others) in enumerate(rest[:-1]):
        needed = {label for _, later in rest[n + 1 :] for label in later} | set(parsed.output)
        kept = tuple(dict.fromkeys(k for k in (*labels, *others) if k in needed))
        left = _contracted([(left, labels), (right, others)], kept, extents, work)
        labels = kept
    last = _contracted([(left, labels), *rest[-1:]], parsed.output, extents, work)
    if work is result:
        return last
    return te.compute(last.shape, lambda *i: te.cast(last[i], result), name="einsum_result")


def parse(equation: str, ranks: Sequence[int]) -> Equation:
    """The equation with a label for each dimension of operands of these ranks."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise _refusal(equation, f"it has {len(terms)} terms for {len(ranks)} operands")
    inputs = tuple(_labels(equation, t, r) for t, r in zip(terms, ranks, strict=True))
    dots = max((sum(isinstance(k, int) for k in labels) for labels in inputs), default=0)
    output = _output(equation, right, dots) if arrow else _implicit(inputs, dots)
    unknown = [k for k in output if all(k not in labels for labels in inputs)]
    if unknown:
        raise _refusal(equation, f"its result names {unknown[0]}, which no operand has")
    return Equation(inputs, output)


def _labels(equation: str, term: str, rank: int) -> Labels:
    before, dots, after = term.partition("...")
    letters = before + after
    if not all(c.isalpha() and c.isascii() for c in letters):
        raise _refusal(equation, f"{term!r} is no list of letters")
    free = rank - len(letters)
    if free < 0 or (free and not dots):
        raise _refusal(equation, f"{term!r} does not name the {rank} dimensions of its operand")
    return (*before, *reversed(range(free)), *after)


def _output(equation: str, term: str, dots: int) -> Labels:
    if len(set(term.replace(".", ""))) != len(term.replace(".", "")):
        raise _refusal(equation, "its result names a letter twice")
    has_dots = "..." in term
    if dots and not has_dots:
        raise _refusal(equation, "its result leaves out what ... stands for")
    return _labels(equation, term, len(term.replace(".", "")) + dots * has_dots)


def _implicit(inputs: Sequence[Labels], dots: int) -> Labels:
    """Without an arrow: letters that occur once, in alphabetical order."""
    letters = [k for labels in inputs for k in labels if isinstance(k, str)]
    return (*reversed(range(dots)), *sorted(k for k in set(letters) if letters.count(k) == 1))


def _extents(equation: Equation, shapes: Sequence[Sequence[Expr]]) -> dict[Label, Expr]:
    return {k: _extent(k, dims) for k, dims in _dims(equation, shapes).items()}


def _dims(equation: Equation, shapes: Sequence[Sequence[Expr]]) -> dict[Label, list[Expr]]:
    """The dimensions of the operands that each label stands for."""
    found: dict[Label, list[Expr]] = {}
    for labels, shape in zip(equation.inputs, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            found.setdefault(label, []).append(dim)
    return found


def _extent(label: Label, dims: Sequence[Expr]) -> Expr:
    numbers = {known_dim(d) for d in dims} - {None, 1}
    if len(numbers) > 1:
        raise UserError(f"einsum has different extents for {label}: {', '.join(map(str, dims))}")
    return broadcast_shapes(*([d] for d in dims))[0]


def _contracted(
    operands: Sequence[tuple[te.Tensor, Labels]],
    output: Labels,
    extents: dict[Label, Expr],
    work: DType,
) -> te.Tensor:
    """The product of one or two tensors, summed over the labels that the output lacks."""
    inside = dict.fromkeys(k for _, labels in operands for k in labels if k not in output)
    over = {k: te.reduce_axis(extents[k], name=f"k{k}") for k in inside}

    def element(*i: Expr) -> Any:
        at: dict[Label, Any] = {**dict(zip(output, i, strict=True)), **over}
        values = [_read(t, labels, at, extents).astype(work) for t, labels in operands]
        value = values[0] if len(values) == 1 else values[0] * values[1]
        return te.sum(value, axis=list(over.values())) if over else value

    return te.compute([extents[k] for k in output], element, name="einsum")


def _read(
    tensor: te.Tensor, labels: Labels, at: dict[Label, Any], extents: dict[Label, Expr]
) -> Expr:
    out = [extents[k] for k in labels]
    return tensor[broadcast_index(tensor.shape, out, [at[k] for k in labels])]


def _refusal(equation: str, reason: str) -> UserError:
    return UserError(f"einsum cannot read the equation {equation!r}", reason=reason)
