"""Operands whose symbolic dimensions must agree: what fits is computed, what does not is refused.

Every dimension is a symbol of its own. A row names those that any size does for; of each of the
others, one more element must be refused when the program runs, by the name of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import (
    Builder,
    Function,
    Module,
    TensorType,
    Value,
    evaluate,
    find_op,
    parse_module,
)
from tilewright.ir import Var
from tilewright.ir import evaluate as evaluate_expr
from tilewright.models.native import HOST_TEXT
from tilewright.support.errors import UserError

RNG = np.random.default_rng(7)


class Fixed(int):
    """An extent that is a number in the type too."""


class Case(NamedTuple):
    op: str
    operands: Sequence[tuple[Any, ...]]
    #: Operands and axes that any size does for.
    free: Sequence[tuple[int, int]] = ()
    dtypes: str = ""
    attrs: Mapping[str, Any] = MappingProxyType({})

    def dtype(self, k: int) -> np.dtype[Any]:
        """f: float32, l: int64, B: uint8, ?: bool; float32 where none is given."""
        return np.dtype(self.dtypes[k] if k < len(self.dtypes) else "f")

    def symbolic(self) -> list[tuple[int, int]]:
        return [
            (k, axis)
            for k, shape in enumerate(self.operands)
            for axis, extent in enumerate(shape)
            if not isinstance(extent, Fixed)
        ]

    def tied(self) -> list[tuple[int, int]]:
        return [at for at in self.symbolic() if at not in self.free]

    def shapes(self, longer: tuple[int, int] | None = None) -> list[tuple[int, ...]]:
        """The extents, one of them by one longer."""
        return [
            tuple(n + ((k, axis) == longer) for axis, n in enumerate(shape))
            for k, shape in enumerate(self.operands)
        ]


ONE, TWO, THREE, FOUR, FIVE = map(Fixed, range(1, 6))
_NBITS = [(2, 32), (3, ONE, Fixed(16)), (3, ONE), (3, ONE), (3,)]
_ADD = {"reduction": "add"}
_IMAGE = [(0, 0), (0, 2), (0, 3)]


def _recurrent(gates: int, *more: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Operands of `gates` gates of 5 elements on inputs of 4, in batches of 2."""
    rows = gates * 5
    weights = [(ONE, rows, 4), (ONE, rows, 5), (ONE, 2 * rows)]
    return [(3, 2, 4), *weights, (2,), (ONE, 2, 5), *more]


CASES = [
    Case("add", [(2, 3), (2, 3)]),
    Case("where", [(2, 3), (2, 3), (2, 3)], dtypes="?"),
    Case("prelu", [(2, 3), (3,)], [(0, 0)]),
    Case("matmul", [(2, 3, 4), (2, 4, 5)], [(0, 1), (1, 2)]),
    Case("gemm", [(2, 3), (3, 4), (2, 4)]),
    Case("dense", [(2, 3), (4, 3), (4,)], [(0, 0)]),
    Case("einsum", [(2, 3), (3, 4)], [(0, 0), (1, 1)], attrs={"equation": "ij,jk->ik"}),
    Case("matmul_integer", [(2, 3), (3, 4), (2,), (4,)], dtypes="BBBB"),
    Case("qlinear_matmul", [(2, 3), (2,), (2,), (3, 4), (4,), (4,), (), ()], dtypes="BfBBfBfB"),
    Case("conv", [(2, 3, 5, 5), (4, 3, THREE, THREE), (4,)], _IMAGE),
    Case("conv_transpose", [(2, 3, 4, 4), (3, 2, THREE, THREE), (2,)], _IMAGE),
    Case("conv_integer", [(2, 3, 5, 5), (4, 3, TWO, TWO), (), (4,)], _IMAGE, "BBBB"),
    Case(
        "qlinear_conv",
        [(2, 3, 5, 5), (), (), (4, 3, TWO, TWO), (4,), (4,), (), ()],
        _IMAGE,
        "BfBBfBfB",
    ),
    Case("deform_conv", [(1, 2, 4, 4), (3, 2, TWO, TWO), (1, 8, 3, 3), (3,), (1, 4, 3, 3)]),
    Case("batch_norm", [(2, 3, 4), (3,), (3,), (3,), (3,)], [(0, 0), (0, 2)]),
    Case("instance_norm", [(2, 3, 4), (3,), (3,)], [(0, 0), (0, 2)]),
    Case("group_norm", [(2, 4, 3), (4,), (4,)], [(0, 0), (0, 2)], attrs={"groups": 2}),
    Case("layer_norm", [(2, 3), (3,), (3,)], [(0, 0)]),
    Case("rms_norm", [(2, 3), (3,)], [(0, 0)]),
    Case("attention", [(2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 7), (3, 6)], [(2, 3)]),
    Case("rotary_embedding", [(2, 3, 4, 6), (2, 4, 3), (2, 4, 3)], [(0, 1)]),
    Case("rotary_embedding", [(2, 3, 4, 6), (5, 3), (5, 3), (2, 4)], [(0, 1)], "fffl"),
    Case("lstm", _recurrent(4, (ONE, 2, 5), (ONE, 15)), [(0, 0)], "ffffl"),
    Case("gru", _recurrent(3), [(0, 0)], "ffffl"),
    Case("rnn", _recurrent(1), [(0, 0)], "ffffl"),
    Case("gather_elements", [(3, 4), (2, 4)], [(0, 0), (0, 1), (1, 0)], "fl"),
    Case("gather_nd", [(2, 3, 4), (2, 5, ONE)], [(0, 1), (0, 2), (1, 1)], "fl", {"batch_dims": 1}),
    Case(
        "scatter_elements", [(3, 4), (2, 4), (2, 4)], [(0, 0), (0, 1)], "fl", {"reduction": "add"}
    ),
    Case("scatter_nd", [(3, 4), (5, ONE), (5, 4)], [(0, 0)], "fl", _ADD),
    Case("tensor_scatter", [(2, 3, 6, 4), (2, 3, 2, 4), (2,)], [(0, 2), (1, 2)], "ffl"),
    Case("quantize", [(2, 3), (3,), (3,)], [(0, 0)], "ffB"),
    Case("dequantize", [(2, 3), (3,), (3,)], [(0, 0)], "BfB"),
    Case(
        "matmul_nbits",
        [(2, 32), (3, ONE, Fixed(16)), (3, ONE), (3, ONE), (3,)],
        [(0, 0)],
        "fBfBf",
        {"depth": 32},
    ),
    Case("grid_sample", [(2, 3, 4, 4), (2, 3, 3, TWO)], [*_IMAGE[1:], (0, 1), (1, 1), (1, 2)]),
    Case("roi_align", [(2, 3, 6, 6), (4, 4), (4,)], [*_IMAGE, (0, 1)], "ffl", {"size": [2, 2]}),
    Case("max_roi_pool", [(2, 3, 6, 6), (4, 5)], [*_IMAGE, (0, 1), (1, 0)], attrs={"size": [2, 2]}),
    Case("nll_loss", [(2, 3, 4), (2, 4), (3,)], dtypes="fl"),
    Case("softmax_cross_entropy", [(2, 3, 4), (2, 4), (3,)], dtypes="fl"),
    Case("concat", [(2, 3), (2, 4), (2, 3)], [(0, 1), (1, 1), (2, 1)], attrs={"axis": 1}),
    Case("reverse_sequence", [(3, 2, 4), (2,)], [(0, 0), (0, 2)], "fl"),
    Case("max_unpool", [(2, 3), (2, 3)], dtypes="fl", attrs={"shape": [4, 6]}),
    Case("compress", [(3, 4), (3,)], [(0, 0), (0, 1)], "f?", {"axis": 0}),
    Case("lookup", [(4,), (3,), (3,), ()], [(0, 0)], "llff"),
    Case("one_hot", [(3,), (2,)], [(0, 0)], "lf", {"depth": 4}),
    Case("nms", [(1, 5, 4), (1, 2, 5)], [(1, 1)]),
    Case("det", [(2, 3, 3)], [(0, 0)]),
]
_IDS = [f"{n}-{c.op}" for n, c in enumerate(CASES)]


def values_of(case: Case, number: int = 0) -> list[Value]:
    """Operands, each dimension of which is a symbol of its own."""

    def value(k: int, shape: tuple[Any, ...]) -> Value:
        dims = [n if isinstance(n, Fixed) else f"d{number}_{k}_{a}" for a, n in enumerate(shape)]
        shape_ = [int(d) if isinstance(d, int) else Var(d) for d in dims]
        return Value(f"x{number}_{k}", TensorType(case.dtype(k), shape_))

    return [value(k, s) for k, s in enumerate(case.operands)]


@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_conditions_are_for_what_must_agree(case: Case) -> None:
    op, values = find_op(case.op), values_of(case)
    conditions = op.conditions(*op.bind(values, dict(case.attrs)))

    def hold(shapes: Sequence[tuple[int, ...]]) -> bool:
        sizes = {
            dim: extent
            for value, shape in zip(values, shapes, strict=True)
            for dim, extent in zip(value.shape, shape, strict=True)
            if isinstance(dim, Var)
        }
        return all(evaluate_expr(c, sizes) for c, _ in conditions)

    assert hold(case.shapes())
    assert [at for at in case.symbolic() if hold(case.shapes(at))] == sorted(case.free)


#: Operators that ask nothing but equality of single dimensions.
_EQUAL = frozenset(
    "add where matmul gemm dense batch_norm layer_norm gather_nd scatter_nd nll_loss concat det "
    "grid_sample quantize max_unpool".split()
)


@pytest.mark.parametrize("case", [c for c in CASES if c.op in _EQUAL], ids=lambda c: c.op)
def test_equal_symbols_are_not_asked(case: Case) -> None:
    op, symbols = find_op(case.op), {n: Var(f"n{n}") for n in range(10)}

    def value(k: int, shape: Sequence[int]) -> Value:
        dims = [int(n) if isinstance(n, Fixed) else symbols[n] for n in shape]
        return Value(f"x{k}", TensorType(case.dtype(k), dims))

    values = [value(k, shape) for k, shape in enumerate(case.operands)]
    assert not op.conditions(*op.bind(values, dict(case.attrs)))


def arrays(case: Case, longer: tuple[int, int] | None = None) -> list[Any]:
    return [_array(case.dtype(k), s) for k, s in enumerate(case.shapes(longer))]


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if dtype.kind == "f":
        return RNG.uniform(0.5, 1.5, shape).astype(dtype)
    return RNG.integers(0, 2, shape).astype(dtype)


#: Operators whose kernels take long to compile; the conditions of others are of their kind.
_SLOW = {
    *("conv_integer", "conv_transpose", "deform_conv", "qlinear_conv"),
    *("grid_sample", "gru", "rnn", "qlinear_matmul"),
}
_COMPILED = [c for c in CASES if c.op not in _SLOW]
#: So many programs hold them all: one would take minutes to compile.
_PARTS = 8


def program(cases: Sequence[Case]) -> Function:
    """Operators of the table, each on operands of its own."""
    b = Builder()
    for number, case in enumerate(cases):
        values = values_of(case, number)
        operands = [b.input(v.name, v.dtype, v.shape) for v in values]
        b.output(*_several(getattr(b, case.op)(*operands, **case.attrs)))
    return b.function()


def _several(result: Any) -> Sequence[Value]:
    return result if isinstance(result, tuple | list) else [result]


def _flat(given: Sequence[Sequence[Any]]) -> list[Any]:
    return [a for each in given for a in each]


@pytest.mark.parametrize("part", range(_PARTS))
def test_compiled_programs_stop_where_dimensions_do_not_agree(part: int) -> None:
    cases = _COMPILED[part::_PARTS]
    function = program(cases)
    model = tw.compile(Module([function]), opt_level=1, threads=1)
    fitting = [arrays(case) for case in cases]
    results = model.run(_flat(fitting))
    for got, want in zip(results, evaluate(function, _flat(fitting)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for number, case in enumerate(cases):
        for at in case.tied():
            given = [*fitting[:number], arrays(case, at), *fitting[number + 1 :]]
            with pytest.raises(UserError, match=rf"{case.op}: "):
                model.run(_flat(given))


_CHECKED_ONCE = """
def main(x: f32[n], y: f32[m], often: bool[()]):
    def then():
        a = mul(x, y)
        b = softmax(a)
        return b
    def otherwise():
        c = sub(x, y)
        d = softmax(c)
        return d
    s = {first}
    t = softmax(s)
    u = branch(often, then, otherwise)
    v = {second}
    w = softmax(v)
    return t, u, w
"""


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ("add(x, y)", "maximum(x, y)", 1),
        # What only one of the branches asks is not known to hold behind them, nor in the other.
        ("add(x, x)", "minimum(x, y)", 3),
    ],
)
def test_what_holds_is_asked_once(first: str, second: str, count: int) -> None:
    model = tw.compile(parse_module(_CHECKED_ONCE.format(first=first, second=second)), threads=1)
    assert model.texts[HOST_TEXT].count("assert m == n or") == count
