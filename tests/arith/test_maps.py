"""Affine maps and block bindings."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arith import AffineMap, Ranges, detect_bindings, prove_equal
from tilewright.ir import TRUE, Expr, Var, const, evaluate
from tilewright.support.errors import UserError

i, j, k, n, m = (Var(name) for name in "ijknm")
io, ii = Var("io"), Var("ii")
fused = io * 6 + ii


@pytest.mark.parametrize(
    ("bindings", "loops", "predicate", "extents"),
    [
        ([i, j], {i: 4, j: 5}, TRUE, [4, 5]),
        ([i // 4, i % 4], {i: 32}, TRUE, [8, 4]),
        ([i * 5 + j, k], {i: 4, j: 5, k: 3}, TRUE, [20, 3]),
        ([i * 2 + j // 3, j % 3], {i: 5, j: 6}, TRUE, [10, 3]),
        ([(i * 4 + j) // 6, (i * 4 + j) % 6], {i: 3, j: 4}, TRUE, [2, 6]),
        ([fused], {io: 6, ii: 6}, fused < 32, [32]),
        ([fused // 4, fused % 4], {io: 6, ii: 6}, fused < 32, [8, 4]),
        ([i * 32 + fused], {i: 3, io: 6, ii: 6}, fused < 32, [96]),
        ([io * 4 + ii], {io: (n + 3) // 4, ii: 4}, io * 4 + ii < n, [n]),
        ([i // m, i % m], {i: n * m}, TRUE, [n, m]),
        ([i * m + j], {i: n, j: m}, TRUE, [n * m]),
        ([i, const(0)], {i: 4, j: 1}, TRUE, [4, 1]),
        ([i], {i: 8}, i < 5, [5]),
        ([i // 8, i // 2 % 4, i % 2], {i: 64}, TRUE, [8, 4, 2]),
    ],
    ids=str,
)
def test_bijective(bindings: list[Expr], loops: Any, predicate: Expr, extents: list[Any]) -> None:
    found = detect_bindings(bindings, loops, predicate, domain=extents)
    assert found.bijective, found.reason
    assert found.under_predicate == (predicate is not TRUE)
    known = Ranges().with_bounds(n, 1, None).with_bounds(m, 1, None)
    for extent, wanted in zip(found.extents, extents, strict=True):
        wanted = wanted if isinstance(wanted, Expr) else const(wanted)
        assert prove_equal(extent, wanted, known)


@pytest.mark.parametrize(
    ("bindings", "loops", "predicate", "reason"),
    [
        ([i + j], {i: 4, j: 5}, TRUE, "has gaps or meets a value twice"),
        ([i * 6 + j], {i: 4, j: 5}, TRUE, "has gaps or meets a value twice"),
        ([i * 33 + fused], {i: 3, io: 6, ii: 6}, fused < 32, "has gaps or meets a value twice"),
        ([i, i], {i: 4}, TRUE, "overlap or are left out"),
        ([i], {i: 4, j: 3}, TRUE, "the loop `j` is not used"),
        ([i // 4], {i: 32}, TRUE, "overlap or are left out"),
        ([i % 4], {i: 32}, TRUE, "runs over 32 values, of which 4"),
        ([i // 4, i % 4], {i: 30}, TRUE, "runs over 30 values, of which 32"),
        ([io, ii], {io: 6, ii: 6}, fused < 32, "no whole binding"),
        ([i + 1], {i: 4}, TRUE, "does not start at 0"),
        ([i * j], {i: 4, j: 4}, TRUE, "no multiple of a loop"),
        ([i * i], {i: 4}, TRUE, "no multiple of a loop"),
        ([i], {i: 8}, i >= 3, "no upper bound of a binding"),
        ([const(3) - i], {i: 4}, TRUE, "no multiple of a loop"),
    ],
    ids=str,
)
def test_not_bijective(bindings: list[Expr], loops: Any, predicate: Expr, reason: str) -> None:
    found = detect_bindings(bindings, loops, predicate)
    assert not found.bijective
    assert reason in found.reason


def test_domain_is_checked() -> None:
    found = detect_bindings([i], {i: 4}, domain=[5])
    assert "takes 4 values, its iterator 5" in found.reason


def _met(bindings: list[Expr], loops: dict[Var, int], predicate: Expr) -> list[tuple[int, ...]]:
    """The values of the bindings, by running the loops."""
    found: list[tuple[int, ...]] = []
    for point in itertools.product(*(range(e) for e in loops.values())):
        env = dict(zip(loops, point, strict=True))
        if bool(evaluate(predicate, env)):
            found.append(tuple(int(evaluate(b, env)) for b in bindings))
    return found


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_bijective_is_never_a_lie(data: st.DataObject) -> None:
    loops = {v: data.draw(st.integers(1, 6)) for v in (i, j, k)}
    bindings = [data.draw(_digits(list(loops))) for _ in range(data.draw(st.integers(1, 3)))]
    predicate = TRUE
    if data.draw(st.booleans()):
        predicate = data.draw(_digits(list(loops))) < data.draw(st.integers(1, 12))
    found = detect_bindings(bindings, dict(loops), predicate)
    if found.bijective:
        met = _met(bindings, loops, predicate)
        extents = [int(evaluate(e, {})) for e in found.extents]
        assert len(set(met)) == len(met) == math.prod(extents)
        assert all(v < e for point in met for v, e in zip(point, extents, strict=True))


@st.composite
def _digits(draw: Any, variables: list[Var]) -> Expr:
    total: Expr = draw(st.sampled_from(variables))
    for _ in range(draw(st.integers(0, 3))):
        step = draw(st.integers(0, 2))
        size = draw(st.integers(1, 6))
        if step == 0:
            total = total * size + draw(st.sampled_from(variables))
        else:
            total = total // size if step == 1 else total % size
    return total


LAYOUTS = [
    (lambda n, c, h, w: (n, c // 16, h, w, c % 16), [2, 32, 3, 4], [2, 2, 3, 4, 16]),
    (lambda a, b: (b, a), [3, 5], [5, 3]),
    (lambda a, b: a * 5 + b, [3, 5], [15]),
    (lambda a: (a // 5, a % 5), [15], [3, 5]),
    (lambda a, b: ((a * 8 + b) // 6, (a * 8 + b) % 6), [3, 8], [4, 6]),
    (lambda a, b: (a // 4, b // 2, a % 4, b % 2), [8, 6], [2, 3, 4, 2]),
    (lambda a, b: (b // 4, a * 4 + b % 4), [3, 8], [2, 12]),
]


@pytest.mark.parametrize(("function", "extents", "outputs"), LAYOUTS, ids=range(len(LAYOUTS)))
def test_inverse_inverts(function: Any, extents: list[int], outputs: list[int]) -> None:
    forward = AffineMap.of(function, len(extents))
    back = forward.inverse(extents)
    assert back is not None
    assert [int(evaluate(e, {})) for e in forward.output_extents(extents)] == outputs
    for point in itertools.product(*(range(e) for e in extents)):
        there = [int(evaluate(e, {})) for e in forward.apply(point)]
        assert [int(evaluate(e, {})) for e in back.apply(there)] == list(point)
    known = Ranges()
    for var, extent in zip(forward.inputs, extents, strict=True):
        known = known.with_extent(var, extent)
    for var, value in zip(forward.inputs, back.apply(forward.outputs, known), strict=True):
        assert prove_equal(value, var, known)


def test_symbolic_inverse() -> None:
    flat = AffineMap.of(lambda a, b: a * m + b, 2)
    back = flat.inverse([n, m])
    assert back is not None
    assert back.outputs == (back.inputs[0] // m, back.inputs[0] % m)
    (extent,) = flat.output_extents([n, m])
    assert prove_equal(extent, n * m)


def test_padding_has_only_a_left_inverse() -> None:
    tiles = AffineMap.of(lambda c: (c // 16, c % 16), 1)
    assert tiles.inverse([60]) is None
    back = tiles.left_inverse([60])
    assert back is not None
    assert str(back.outputs[0]) == "o0 * 16 + o1"


@pytest.mark.parametrize(
    ("function", "extents"),
    [(lambda a, b: a + b, [3, 3]), (lambda a: a % 4, [8]), (lambda a, _b: (a,), [4, 2])],
    ids=["sum", "remainder", "dropped"],
)
def test_no_inverse(function: Any, extents: list[int]) -> None:
    assert AffineMap.of(function, len(extents)).inverse(extents) is None


def test_maps_compose() -> None:
    swap = AffineMap.of(lambda a, b: (b, a), 2)
    assert swap.is_permutation
    assert swap.compose(swap).outputs == swap.compose(swap).inputs
    assert AffineMap.identity(3).is_permutation
    assert not AffineMap.of(lambda a: (a, a), 1).is_permutation
    assert str(swap) == "(a, b) -> (b, a)"


def test_apply_counts_its_indices() -> None:
    with pytest.raises(UserError, match=r"cannot apply \(a, b\) -> \(b, a\) to 1 indices"):
        AffineMap.of(lambda a, b: (b, a), 2).apply([const(1)])
