"""Recurrent networks on GPUs: a launch for each step, lowered to one for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import references
from tests.schedule.gpu.launches import TARGET, blocks_in, launches_of, loops, run, scheduled
from tilewright.graph import find_op
from tilewright.ir import (
    Alloc,
    Const,
    For,
    Function,
    Stmt,
    is_barrier,
    is_grid_barrier,
    walk,
)
from tilewright.kernels.pipeline import generated, lowered

Array = np.ndarray[Any, Any]
GATES = {"lstm_scan": 4, "gru_scan": 3, "rnn_scan": 1}


def operands(cell: str, steps: int, rows: int, hidden: int, directions: int = 1) -> list[Array]:
    rng, width = np.random.default_rng(0), GATES[cell] * hidden
    shapes = (steps, rows, directions * width), (directions, hidden, width)
    return [(rng.standard_normal(shape) * 0.3).astype("float32") for shape in shapes]


def attrs(directions: int) -> dict[str, Any]:
    return {"direction": "bidirectional"} if directions == 2 else {}


def network(cell: str, inputs: list[Array], directions: int = 1) -> Function:
    """The loops of a scan whose weights are constants."""
    return loops(cell, *inputs, **attrs(directions)).with_attrs(constants=[1])


def loop_of_steps(function: Function) -> For:
    return next(s for s in walk(function.body) if isinstance(s, For) and s.var.name == "t")


def count(stmt: Stmt, wanted: Any) -> int:
    return sum(map(wanted, walk(stmt)))


def blocks_of(launch: For) -> int:
    assert isinstance(launch.extent, Const)
    return int(launch.extent.value)


@pytest.mark.parametrize(
    ("cell", "rows", "hidden", "directions", "blocks", "barriers"),
    [
        # One tile for each multiprocessor: they meet once a step, twice for a second product.
        ("lstm_scan", 1, 160, 1, 80, 1),
        ("gru_scan", 2, 160, 1, 80, 2),
        ("rnn_scan", 3, 272, 1, 68, 1),
        # A thread has several sums.
        ("lstm_scan", 40, 64, 1, 64, 1),
        # One tile for each direction.
        ("lstm_scan", 2, 24, 2, 2, 1),
        ("gru_scan", 1, 40, 1, 1, 0),
    ],
)
def test_networks(
    cell: str, rows: int, hidden: int, directions: int, blocks: int, barriers: int
) -> None:
    inputs = operands(cell, 3, rows, hidden, directions)
    s = scheduled(network(cell, inputs, directions))
    flat = lowered(s.function, TARGET)
    (launch,) = launches_of(flat)
    assert blocks_of(launch) == blocks
    assert count(loop_of_steps(flat), is_grid_barrier) == barriers
    wanted = references(find_op(cell), inputs, attrs(directions))
    outputs = run(s.function, inputs, [(w.shape, "float32") for w in wanted])
    for output, right in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(output, right, rtol=1e-4, atol=1e-5)


def test_a_step_is_one_launch_and_weights_are_copied_once() -> None:
    s = scheduled(network("lstm_scan", operands("lstm_scan", 3, 1, 512)))
    (step,) = [x for x in launches_of(s.function) if "h" in blocks_in(x)]
    assert {"moved_weights", "moved", "c", "h"} <= set(blocks_in(step))
    flat = lowered(s.function, TARGET)
    inner = loop_of_steps(flat)
    shared = {b.name for a in walk(flat.body) if isinstance(a, Alloc) for b in a.buffers}
    assert "moved_weights" in shared
    assert "moved_weights" not in [
        b.name for a in walk(inner) if isinstance(a, Alloc) for b in a.buffers
    ]
    # Parts of sums, sums, then cells: a block waits for its own threads in between.
    assert count(inner, is_barrier) == 2


def test_weights_that_do_not_fit_are_read_where_they_lie() -> None:
    s = scheduled(network("lstm_scan", operands("lstm_scan", 2, 1, 2112)))
    assert "moved_weights" not in [b.name for b in s.blocks()]


def test_a_hidden_state_without_tiles_goes_by_other_rules() -> None:
    s = scheduled(network("lstm_scan", operands("lstm_scan", 2, 1, 509)))
    assert not [x for x in launches_of(s.function) if {"moved", "h"} <= set(blocks_in(x))]


def test_blocks_meet_by_a_counter() -> None:
    s = scheduled(network("lstm_scan", operands("lstm_scan", 3, 1, 160)))
    code = generated(s.function, TARGET)
    text = code.assembly()
    assert text.count(".entry") == 1
    assert "atom.acq_rel.gpu.add.u32" in text and "ld.acquire.gpu.u32" in text
    assert b'"cooperative": true' in code.serialized()


def test_many_rows_leave_room_in_shared_memory() -> None:
    s = scheduled(network("lstm_scan", operands("lstm_scan", 2, 3000, 128)))
    scopes = {
        b.name: b.scope for a in walk(s.function.body) if isinstance(a, Alloc) for b in a.buffers
    }
    assert scopes["moved_weights"] == "shared"
    assert scopes["moved"] == "global"
    generated(s.function, TARGET)


def test_threads_have_all_gates_of_several_rows() -> None:
    s = scheduled(network("lstm_scan", operands("lstm_scan", 2, 32, 512)))
    sums = [x for x in s.loops("moved_rf") if s.loop_of(x).kind == "unrolled"]
    assert [s.loop_of(x).extent.value for x in sums] == [4, 4, 4]  # type: ignore[attr-defined]
