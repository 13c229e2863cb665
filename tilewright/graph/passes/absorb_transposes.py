"""Folds transposes of operands into the products that read them.

    t = transpose(q, axes=[0, 2, 1, 3])
    y = matmul(t, u)                     -->     y = einsum(q, u, equation="aibk,abkj->abij")

For GPUs, whose products copy tiles of their operands to shared memory anyway. A common case is
attention, where the heads are a dimension between the rows and their elements. The contiguous
dimension of an operand must be a row, column or summed dimension of the product, not a batch one.

Constant weights are transposed at compile time where their rows are not a whole number of vectors,
the unit of those copies, but their columns are: for example in a classifier with an odd number of
classes. Weights of bytes, and of float32 where products use TF32, are stored contiguously along
the summed axis, as tensor instructions want.

    y = matmul_integer(x, w, z)     -->     y = sub(matmul(x, transposed w, int32), z * sums of w)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from tilewright.graph.ir import Call, Module, Value
from tilewright.graph.ir.types import is_single
from tilewright.graph.passes.dead_code import dead_code
from tilewright.graph.rewriting.context import TF32, PassContext
from tilewright.graph.rules import Rule, RuleRewriter
from tilewright.graph.rules.centred import centred_bytes
from tilewright.graph.rules.site import Site
from tilewright.graph.rules.transposes import equation_of, order_of
from tilewright.ir import DType

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
#: Elements in a vector of the narrow floats that tensor instructions multiply.
_VECTOR: Final = 8
_INT32: Final = DType.of("int32")


class _Product(NamedTuple):
    """The dimension letters of both operands and of the result."""

    operands: tuple[str, str]
    result: str

    @property
    def batch(self) -> set[str]:
        return set(self.operands[0]) & set(self.operands[1]) & set(self.result)


def _is_byte(dtype: DType) -> bool:
    """Whether tensor instructions multiply a type as bytes."""
    return dtype.is_integer and dtype.bits == 8


def lies_along_sum(dtype: DType) -> bool:
    """Whether tensor instructions want operands of a type contiguous along the summed axis."""
    is_wide = dtype.is_float and dtype.bits == 32
    return _is_byte(dtype) or (is_wide and PassContext.current().precision == TF32)


def absorb_transposes(module: Module) -> Module:
    """The module with transposes of operands folded into their products."""
    changed = module.map(lambda f: RuleRewriter(f, _rules).graph(f))
    return module if changed is module else dead_code(changed)


def _absorbed(s: Site) -> Value | None:
    product = _product_of(s)
    if product is None:
        return None
    sources = [_source(s, k, labels, product) for k, labels in enumerate(product.operands)]
    if sources == [None, None]:
        return None
    found = [
        (value, labels) if source is None else source
        for source, value, labels in zip(sources, s.args, product.operands, strict=True)
    ]
    (a, left), (b, right) = found
    equation = f"{left},{right}->{product.result}"
    return s.emit("einsum", a, b, equation=equation, dtype=s.attr("dtype"))


def _with_whole_rows(s: Site) -> Value | None:
    """A product by constant weights, transposed so that their rows are whole vectors."""
    w = s.arg(1)
    if w.constant is None or w.ndim != 2 or not s.makers.may_change(w):
        return None
    rows, columns = w.constant.shape
    is_whole = columns % _VECTOR == 0 or rows % _VECTOR or columns == 1
    if s.attr("transpose_b") if lies_along_sum(w.dtype) else is_whole:
        return None
    turned = s.constant(np.ascontiguousarray(w.constant.T), w)
    args = [*s.call.args]
    args[1] = turned
    return s.again(s.call, args, transpose_b=not s.attr("transpose_b"))


def _along_sum(s: Site) -> Value | None:
    """A product by constant bytes without a zero point, or with one that they can absorb."""
    x, (w, x_zero, w_zero) = s.arg(0), s.call.args[1:4]
    is_matrix = w is not None and w.ndim == 2 and x.ndim >= 2
    columns = centred_bytes(w, w_zero, axis=1) if is_matrix and _is_byte(x.dtype) else None
    if columns is None:
        return None
    factors = s.constant(np.ascontiguousarray(columns.T))
    total = s.emit("matmul", x, factors, transpose_b=True, dtype=_INT32)
    if x_zero is None:
        return total
    zero = s.emit("cast", x_zero, dtype=_INT32)
    if zero.ndim == 1 and not is_single(zero.shape):
        zero = s.emit("reshape", zero, shape=(-1, 1))
    elif zero.ndim < 2:
        zero = s.emit("reshape", zero, shape=())
    sums = s.constant(columns.sum(axis=0, dtype=np.int32))
    return s.emit("sub", total, s.emit("mul", zero, sums))


def _source(s: Site, k: int, labels: str, product: _Product) -> tuple[Value, str] | None:
    """The source of a transposed operand, with the letters of its dimensions."""
    inner = s.private(s.args[k], "transpose")
    source = None if inner is None else inner.args[0]
    if inner is None or source is None:
        return None
    places = dict(zip(order_of(inner), labels, strict=True))
    names = "".join(places[axis] for axis in range(source.ndim))
    return None if names[-1] in product.batch else (source, names)


def _product_of(s: Site) -> _Product | None:
    call = s.call
    return _of_einsum(call) if call.op.name == "einsum" else _of_matmul(call, s.args)


def _of_matmul(call: Call, args: Sequence[Value]) -> _Product | None:
    a, b = args
    rank = a.ndim
    if rank < 3 or rank != b.ndim or a.shape[:-2] != b.shape[:-2]:
        return None
    left, right, result = _split(equation_of(call, rank, tuple(range(rank))))
    return _Product((left, right), result)


def _of_einsum(call: Call) -> _Product | None:
    equation = str(call.attrs["equation"]).replace(" ", "")
    names = _split(equation)
    if len(names) != 3 or "->" not in equation:
        return None
    # Equations with a letter twice in one operand, or with `...`, are left alone.
    if any(len(set(n)) != len(n) or not set(n) <= _LETTERS for n in names):
        return None
    left, right, result = names
    return _Product((left, right), result)


def _split(equation: str) -> list[str]:
    return equation.replace("->", ",").split(",")


def _rules(name: str) -> Iterable[Rule]:
    return _RULES.get(name, ())


_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "matmul": (_absorbed, _with_whole_rows),
    "matmul_integer": (_along_sum,),
    "gemm": (_with_whole_rows,),
    "einsum": (_absorbed,),
}
