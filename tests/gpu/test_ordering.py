"""Launches wait for those that touch the same memory, and for no others."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder
from tilewright.graph import Module as Graph
from tilewright.kernels.pipeline import Options, stages_of
from tilewright.runtime import Ordering, Touched
from tilewright.simt.device import DEVICE

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def meet(a: Touched, b: Touched) -> bool:
    """Whether two launches touch the same bytes, one of them writing."""
    pairs = [(a.writes, [*b.reads, *b.writes]), (a.reads, b.writes)]
    return any(x[0] < y[1] and y[0] < x[1] for xs, ys in pairs for x in xs for y in ys)


def order_of(launches: list[Touched]) -> list[tuple[int, ...]]:
    ordering = Ordering()
    return [ordering.add(touched) for touched in launches]


def reached(waits: list[tuple[int, ...]]) -> list[set[int]]:
    """All launches that each one comes after."""
    before: list[set[int]] = []
    for own in waits:
        before.append(set(own).union(*(before[k] for k in own)))
    return before


def random_launches(seed: int) -> list[Touched]:
    rng = random.Random(seed)

    def spans(most: int) -> list[tuple[int, int]]:
        starts = [rng.randrange(60) for _ in range(rng.randrange(most + 1))]
        return [(s, s + rng.randrange(1, 12)) for s in starts]

    return [Touched(spans(3), spans(2)) for _ in range(25)]


@pytest.mark.parametrize("seed", range(30))
def test_what_touches_the_same_bytes_is_ordered_and_nothing_else(seed: int) -> None:
    launches = random_launches(seed)
    before = reached(order_of(launches))
    # What follows from conflicts alone, pair by pair.
    wanted: list[set[int]] = []
    for k, touched in enumerate(launches):
        met = {j for j in range(k) if meet(launches[j], touched)}
        wanted.append(met.union(*(wanted[j] for j in met)))
    assert before == wanted


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_waited_for_twice(seed: int) -> None:
    waits = order_of(random_launches(seed))
    before = reached(waits)
    for own in waits:
        assert not any(a in before[b] for a in own for b in own)


def test_a_fence_orders_all() -> None:
    ordering = Ordering()
    assert ordering.add(Touched(writes=[(0, 4)])) == ()
    assert ordering.add(Touched(writes=[(4, 8)])) == ()
    ordering.fence()
    assert ordering.add(Touched(writes=[(100, 104)])) == (0, 1)
    assert ordering.add(Touched(reads=[(4, 8)], writes=[(200, 204)])) == (0, 1)


# ---- models --------------------------------------------------------------------------------------


class Held:
    """Launches of the executor that wait until somebody looks, and then run in any order that
    the plan allows."""

    def __init__(self, seed: int) -> None:
        self.plan: list[Touched] = []
        self.waits: list[tuple[int, ...]] = []
        self._rng = random.Random(seed)
        self._runs: list[Callable[[], None]] = []
        self._ordering = Ordering()

    def add(self, touched: Touched, run: Callable[[], None]) -> None:
        self.plan.append(touched)
        self.waits.append(self._ordering.add(touched))
        self._runs.append(run)

    def flush(self) -> None:
        start = len(self.plan) - len(self._runs)
        left = set(range(start, len(self.plan)))
        while left:
            ready = [k for k in left if left.isdisjoint(self.waits[k])]
            chosen = self._rng.choice(ready)
            self._runs[chosen - start]()
            left.remove(chosen)
        self._runs.clear()

    @property
    def pairs_side_by_side(self) -> int:
        before = reached(self.waits)
        return sum(j not in before[k] for k in range(len(before)) for j in range(k))


@contextmanager
def held(seed: int) -> Generator[Held]:
    own = Held(seed)
    start, copy, store, read, write = (
        DEVICE.start,
        DEVICE.copy,
        DEVICE.store,
        DEVICE.read,
        DEVICE.write,
    )

    def held_copy(to: int, source: int, size: int) -> None:
        touched = Touched([(source, source + size)], [(to, to + size)])
        own.add(touched, lambda: copy(to, source, size))

    def held_store(place: int, data: bytes) -> None:
        own.add(Touched(writes=[(place, place + len(data))]), lambda: store(place, data))

    def flushed(call: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            own.flush()
            call(*args)

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            DEVICE, "start", lambda *args: own.add(args[3], lambda: start(*args)), raising=True
        )
        patch.setattr(DEVICE, "copy", held_copy)
        patch.setattr(DEVICE, "store", held_store)
        # What a run brings along and takes home goes before all of its launches, and behind them.
        patch.setattr(DEVICE, "send", flushed(copy))
        patch.setattr(DEVICE, "fetch", flushed(lambda source, to, size: copy(to, source, size)))
        patch.setattr(DEVICE, "read", flushed(read))
        patch.setattr(DEVICE, "write", flushed(write))
        yield own


def weights(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32) * np.float32(0.3)


def branches() -> Graph:
    """Three branches of convolutions that are joined, twice."""
    b = Builder()
    x = b.input("x", "f32", (1, 4, 8, 8))
    for _ in range(2):
        ways = [b.relu(b.conv(x, weights(4, 4, 3, 3), pads=(1, 1, 1, 1))) for _ in range(3)]
        ways = [b.relu(b.conv(w, weights(4, 4, 3, 3), pads=(1, 1, 1, 1))) for w in ways]
        x = b.add(b.mul(ways[0], ways[1]), ways[2])
    b.output(b.softmax(b.mean(x, axes=(2, 3))))
    return b.build()


def recurrent() -> Graph:
    b = Builder()
    x = b.input("x", "f32", (3, 2, 8))
    y, *_ = b.lstm(x, weights(1, 32, 8), weights(1, 32, 8))
    b.output(y)
    return b.build()


@pytest.mark.parametrize(
    "make, shape", [(branches, (1, 4, 8, 8)), (recurrent, (3, 2, 8))], ids=["branches", "recurrent"]
)
def test_models_in_any_order_that_the_plan_allows(
    make: Callable[[], Graph], shape: tuple[int, ...]
) -> None:
    graph = make()
    here, there = tw.compile(graph), tw.compile(graph, "simt")
    x = weights(*shape)
    wanted = here(x)
    for seed in range(3):
        with held(seed) as launches:
            np.testing.assert_allclose(there(x), wanted, rtol=1e-4, atol=1e-5)
        before = reached(launches.waits)
        for k, touched in enumerate(launches.plan):
            assert all(j in before[k] for j in range(k) if meet(launches.plan[j], touched))


def test_branches_run_side_by_side() -> None:
    model = tw.compile(branches(), "simt")
    with held(0) as launches:
        model(weights(1, 4, 8, 8))
    # Of three branches, joined twice, six pairs of convolutions that no join has to wait for.
    assert launches.pairs_side_by_side >= 12


def without_merging(graph: Graph, target: str) -> Any:
    with tw.graph.PassContext(disabled_passes={"merge_kernels"}):
        return tw.compile(graph, target)


def test_branches_run_one_after_another_where_merging_is_turned_off() -> None:
    x, graph = weights(1, 4, 8, 8), branches()
    model = without_merging(graph, "simt")
    with held(0) as launches:
        there = model(x)
    assert launches.pairs_side_by_side == 0
    np.testing.assert_allclose(there, tw.compile(graph)(x), rtol=1e-4, atol=1e-5)


def test_launches_wait_for_others_to_end_where_merging_is_turned_off() -> None:
    target, graph = "cuda -arch=sm_90a -mcpu=x86-64-v3", branches()
    plain = without_merging(graph, target)
    assert not any(said["waits"] for said in plain.launches.values())
    assert all("griddepcontrol" not in kernel_text(plain, k) for k in plain.kernels)
    model: Any = tw.compile(graph, target)
    assert all(said["waits"] for said in model.launches.values())


def kernel_text(model: Any, name: str, *, merges: bool = False) -> str:
    options = Options(merges=merges)
    return stages_of(model.ir(name), model.target, options).code.assembly()


def test_a_scan_is_one_launch_unless_that_is_turned_off() -> None:
    x, counts = weights(3, 2, 8), list[int]()
    for disabled in ((), ("merge_kernels",)):
        with tw.graph.PassContext(disabled_passes=disabled):
            model = tw.compile(recurrent(), "simt")
        with held(0) as launches:
            model(x)
        counts.append(len(launches.plan))
    # A product of all inputs, and the scan.
    assert counts[0] == 2
    assert counts[1] > 3 * 2


def test_constants_are_asked_for_before_the_wait() -> None:
    """Large ones alone: what others compute is not there yet, and small ones come soon enough."""
    b = Builder()
    x = b.input("x", "f32", (64, 256))
    for width in (256, 40):
        x = b.matmul(x, RNG.standard_normal((256, width)).astype(np.float32))
    b.output(x)
    model = tw.compile(b.build(), "cuda -arch=sm_90a", precision="float16")
    names = [k for k in model.kernels if k.startswith("matmul")]
    first, second = (kernel_text(model, name, merges=True) for name in names)
    assert (first.count("prefetch.global.L2"), second.count("prefetch.global.L2")) == (1, 0)
    assert first.index("prefetch.global.L2") < first.index("griddepcontrol.wait")
