"""Scans: definitions that look back at what they have computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensor.definitions import blocks, f32
from tilewright.support.errors import UserError
from tilewright.tensor import te


def test_a_running_sum(check: Any, rng: Any) -> None:
    x, m, n = f32(rng, 6, 3), te.var("m"), te.var("n")
    X, state = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    total = te.scan(init, update, state, inputs=[X])
    check([X], [x], total, np.cumsum(x, axis=0))
    kinds = [[i.kind for i in b.iters] for b in blocks(te.function([X], total))]
    assert kinds[-1] == ["ordered", "spatial"]


def test_a_scan_looks_back_as_far_as_it_is_started(check: Any) -> None:
    state = te.placeholder((9,), "int64")
    init = te.compute((2,), lambda t: t)
    update = te.compute((9,), lambda t: state[t - 1] + state[t - 2])
    check([], [], te.scan(init, update, state), np.array([0, 1, 1, 2, 3, 5, 8, 13, 21]))


def test_several_states_and_steps_in_between(check: Any, rng: Any) -> None:
    """A rotation by a matrix: two states that need each other, through a reduction."""
    a, steps = f32(rng, 2, 2), 5
    A = te.placeholder((2, 2), name="A")
    x, y = te.placeholder((steps,), name="x"), te.placeholder((steps,), name="y")
    one = te.compute((1,), lambda _: 1.0)
    pair = te.compute((steps, 2), lambda t, i: te.if_then_else(i == 0, x[t - 1], y[t - 1]))
    k = te.reduce_axis(2)
    turned = te.compute((steps, 2), lambda t, i: te.sum(A[i, k] * pair[t, k], axis=k))
    first, second = te.compute((steps,), lambda t: (turned[t, 0], turned[t, 1]))
    xs, ys = te.scan([one, one], [first, second], [x, y])
    expected = [np.ones(2, "float32")]
    for _ in range(steps - 1):
        expected.append(a @ expected[-1])
    check([A], [a], [xs, ys], *np.array(expected).T)


def test_scans_refuse_what_is_not_known_yet() -> None:
    X, state = te.placeholder((6,), name="X"), te.placeholder((6,), name="state")
    init = te.compute((1,), lambda t: X[t])
    now = te.compute((6,), lambda t: state[t] + X[t], name="now")
    with pytest.raises(
        UserError, match=r"te.compute now.* reads `state\[t\]`: that step of te.scan"
    ):
        te.scan(init, now, state)
    far = te.compute((6,), lambda t: state[t - 2])
    with pytest.raises(UserError, match=r"that is 2 steps back, but te.scan scan starts with 1"):
        te.scan(init, far, state)
    half = te.compute((6,), lambda t: state[t - 1] * 0.5)
    late = te.compute((6,), lambda t: half[t - 1])
    with pytest.raises(UserError, match="only states are kept"):
        te.scan(init, late, state)


def test_scans_refuse_states_that_do_not_fit() -> None:
    X, state = te.placeholder((6,), name="X"), te.placeholder((6,), name="state")
    init = te.compute((1,), lambda t: X[t])
    update = te.compute((6,), lambda t: state[t - 1] + X[t])
    with pytest.raises(UserError, match="has 1 inits, 1 updates, 2 states"):
        te.scan(init, update, [state, X])
    with pytest.raises(UserError, match="state compute, which is no placeholder"):
        te.scan(init, update, update)
    with pytest.raises(UserError, match="of different shapes"):
        te.scan(init, te.compute((5,), lambda t: state[t]), state)
    with pytest.raises(UserError, match="mixes types for the state state"):
        te.scan(te.compute((1,), lambda t: t), update, state)
    with pytest.raises(UserError, match="reads X, which is not among its inputs"):
        te.scan(te.compute((1,), lambda t: 0.0), update, state, inputs=[])
    short = te.compute((3,), lambda i: state[i])
    with pytest.raises(UserError, match="its first dimension is not the 6 steps"):
        te.scan(init, te.compute((6,), lambda t: short[0]), state)
