"""Attention of narrow floats on GPUs: two products and the softmax between them in one launch."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tests.schedule.gpu.launches import TARGET, launches_of, run, scheduled, threads_of
from tilewright import te
from tilewright.ir import DType, Function, cast, select
from tilewright.kernels.pipeline import generated, lowered
from tilewright.schedule import RULES_BY_ADDRESS, Schedule
from tilewright.target.gpus import GPUS

Array = np.ndarray[Any, Any]
F32 = DType.of("float32")
CHOICE = "attention().rows"


class Sizes(NamedTuple):
    batch: int
    heads: int
    rows: int
    keys: int
    size: int


def attention(n: Sizes, *, mask: str = "", dtype: str = "float16", size: int = 0) -> Function:
    """What `fuse_attention` and `narrow_values` make of attention, heads between rows and size."""
    narrow, wide = DType.of(dtype), (n.batch, n.heads, n.rows, n.keys)
    q, k, v = (
        te.placeholder((n.batch, length, n.heads, depth), dtype, name=name)
        for name, length, depth in (
            ("Q", n.rows, n.size),
            ("K", n.keys, n.size),
            ("V", n.keys, size or n.size),
        )
    )
    added = te.placeholder((n.batch, n.keys), "float32", name="added")
    d, j, m, t = (te.reduce_axis(e) for e in (n.size, n.keys, n.keys, n.keys))

    def score(a: Any, h: Any, i: Any, key: Any) -> Any:
        return te.sum(cast(q[a, i, h, d], F32) * cast(k[a, key, h, d], F32), axis=d)

    def masked(a: Any, h: Any, i: Any, key: Any) -> Any:
        value = scores[a, h, i, key] * 0.25
        if mask == "added":
            return value + added[a, key]
        return select(key <= i, value, te.const(-1e9, F32)) if mask == "causal" else value

    def result(a: Any, i: Any, h: Any, column: Any) -> Any:
        return te.sum(cast(shares[a, h, i, j], F32) * cast(v[a, j, h, column], F32), axis=j)

    scores = te.compute(wide, score, name="scores")
    seen = scores if mask == "none" else te.compute(wide, masked, name="masked")
    one = (*wide[:3], 1)
    greatest = te.compute(one, lambda a, h, i, _: te.max(seen[a, h, i, m], axis=m), name="greatest")
    powers = te.compute(
        wide,
        lambda a, h, i, x: te.coarse_exp(seen[a, h, i, x] - greatest[a, h, i, 0]),
        name="powers",
    )
    total = te.compute(one, lambda a, h, i, _: te.sum(powers[a, h, i, t], axis=t), name="total")
    shares = te.compute(
        wide,
        lambda a, h, i, x: cast(powers[a, h, i, x] * (1 / total[a, h, i, 0]), narrow),
        name="shares",
    )
    y = te.compute((n.batch, n.rows, n.heads, size or n.size), result, name="Y")
    out = te.compute(y.shape, lambda *i: cast(y[i], narrow), name="out")
    given = [q, k, v, added] if mask == "added" else [q, k, v]
    return te.function(given, [out], name="attention")


def inputs(n: Sizes, mask: str, dtype: str, size: int = 0) -> list[Array]:
    random = np.random.default_rng(n.rows)
    shapes = [(n.batch, length, n.heads, n.size) for length in (n.rows, n.keys)]
    shapes.append((n.batch, n.keys, n.heads, size or n.size))
    made = [random.standard_normal(s).astype(DType.of(dtype).numpy) for s in shapes]
    far = np.where(random.random((n.batch, n.keys)) < 0.3, -3e38, 0).astype("float32")
    return [*made, far] if mask == "added" else made


def expected(given: list[Array], mask: str) -> Array:
    q, k, v = (a.astype("float64") for a in given[:3])
    scores = np.einsum("aihk,ajhk->ahij", q, k) * (1 if mask == "none" else 0.25)
    if mask == "added":
        scores = scores + given[3][:, None, None, :]
    if mask == "causal":
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -1e9)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("ahij,ajhk->aihk", powers / powers.sum(axis=-1, keepdims=True), v)


def offered(function: Function) -> tuple[Any, ...]:
    """Rows of a tile, where scores are, keys at a time, and whether groups of warps multiply."""
    return RULES_BY_ADDRESS.offered(function, TARGET)[CHOICE]


def check_all(n: Sizes, mask: str = "", dtype: str = "float16", size: int = 0) -> None:
    """Each way by the fewest and by the most rows."""
    plans = offered(attention(n, mask=mask, dtype=dtype, size=size))
    assert plans[0][:2] == (16, "shared"), "there are few tiles"
    ways: dict[Any, list[int]] = {}
    for number, (_, way, _, by_groups) in enumerate(plans):
        ways.setdefault((way, by_groups), []).append(number)
    assert {way for way, _ in ways} == {"shared", "registers", "online"}
    for number in {0, *(k for found in ways.values() if found[0] for k in (found[0], found[-1]))}:
        assert is_one_launch(check(n, mask, dtype, size, number))


def check(
    n: Sizes, mask: str = "", dtype: str = "float16", size: int = 0, number: int = 0
) -> Schedule:
    function = attention(n, mask=mask, dtype=dtype, size=size)
    s = scheduled(function, rules=replace(RULES_BY_ADDRESS, taken={CHOICE: number}))
    given = inputs(n, mask, dtype, size)
    shape = (n.batch, n.rows, n.heads, size or n.size)
    (found,) = run(s.function, given, [(shape, DType.of(dtype).numpy)])
    error = {"float16": 3e-3, "bfloat16": 3e-2}[dtype]
    np.testing.assert_allclose(
        found.astype("float64"), expected(given, mask), rtol=error, atol=error
    )
    return s


def is_one_launch(s: Schedule) -> bool:
    names = re.findall(r'tensor_intrin="([\w.]+)"', str(s.function))
    kinds = [".".join(name.split(".")[-2:]) for name in names]
    is_known = kinds in (["mk.nk", "mk.kn"], ["mk.nk", "own.kn"])
    return len(launches_of(s.function)) == 1 and is_known


@pytest.mark.parametrize(
    "n",
    [
        Sizes(1, 2, 64, 64, 32),
        Sizes(2, 1, 49, 49, 16),
        Sizes(1, 1, 17, 197, 64),
        Sizes(1, 1, 20, 33, 80),
        Sizes(1, 1, 65, 16, 128),
    ],
)
def test_sizes(n: Sizes) -> None:
    check_all(n, "added")


def test_many_keys_are_in_shared_memory_or_a_maximum_runs() -> None:
    n = Sizes(1, 1, 40, 450, 24)
    plans = offered(attention(n))
    assert {way for _, way, *_ in plans} == {"shared", "online"}
    for number, (_, way, *_) in enumerate(plans):
        if number == 0 or way == "online":
            assert is_one_launch(check(n, "added", number=number))


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_what_stands_between_the_products(mask: str) -> None:
    check_all(Sizes(1, 2, 20, 40, 32), mask)


def test_other_types() -> None:
    check_all(Sizes(1, 2, 24, 24, 16), "causal", "bfloat16")


def test_values_of_another_size() -> None:
    check_all(Sizes(1, 2, 24, 40, 32), "added", size=48)


def test_rows_of_which_nothing_is_seen() -> None:
    """Greatest numbers that are added: all keys count the same."""
    n = Sizes(1, 1, 16, 16, 16)
    q, k, v, _ = inputs(n, "added", "float16")
    given = [q, k, v, np.full((1, 16), -3.4e38, "float32")]
    s = scheduled(attention(n, mask="added"))
    (found,) = run(s.function, given, [(q.shape, "float16")])
    want = np.broadcast_to(v.astype("float64").mean(axis=1, keepdims=True), v.shape)
    np.testing.assert_allclose(found.astype("float64"), want, rtol=3e-3, atol=3e-3)


def test_many_heads_have_larger_tiles_in_registers() -> None:
    """By groups of warps where keys make whole chunks."""
    few, many, whole = (
        RULES_BY_ADDRESS.schedule(attention(Sizes(1, heads, 128, keys, 64)), TARGET)
        for heads, keys in ((12, 77), (384, 77), (384, 128))
    )
    threads = [threads_of(launches_of(s.function)[0]) for s in (few, many, whole)]
    assert [t["threadIdx.z"] for t in threads] == [1, 4, 1], "warps along the rows of a tile"
    assert threads[-1]["threadIdx.y"] == 4
    assert [".own." in str(s.function) for s in (few, many, whole)] == [False, True, True]
    assert is_one_launch(check(Sizes(60, 2, 17, 16, 16)))


@pytest.mark.parametrize(
    ("n", "why"),
    [
        (Sizes(1, 2, 4, 64, 32), "few rows"),
        (Sizes(1, 2, 32, 64, 8), "a size that instructions do not have"),
        (Sizes(1, 1, 16, 8192, 16), "more scores than shared memory holds"),
    ],
)
def test_what_stays_in_parts(n: Sizes, why: str) -> None:
    s = RULES_BY_ADDRESS.schedule(attention(n), TARGET)
    assert len(launches_of(s.function)) > 1, why


def test_old_gpus_have_no_such_instructions() -> None:
    old = tw.Target.of("cuda -arch=sm_75")
    s = RULES_BY_ADDRESS.schedule(attention(Sizes(1, 2, 32, 64, 32)), old)
    assert len(launches_of(s.function)) > 1


@pytest.mark.parametrize("keys", [64, 77])
def test_code(keys: int) -> None:
    """Operands come by asynchronous copies, tiles by the instruction for it, also at odd sizes;
    values are on their way while rows are summed up."""
    s = RULES_BY_ADDRESS.schedule(attention(Sizes(1, 2, 21, keys, 32), mask="added"), TARGET)
    text = generated(s.function, TARGET).assembly()
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in text
    assert not re.search(r"(ld|st)\.\w+\.b8", text), "no bytes are moved one by one"
    assert "ld.global.v4" not in text, "copies are asynchronous"
    assert text.rindex("cp.async.cg") < text.index("rcp."), "values come before rows are divided"


@pytest.mark.parametrize("keys", [77, 197])
def test_code_with_scores_in_registers(keys: int) -> None:
    s = RULES_BY_ADDRESS.schedule(attention(Sizes(32, 12, keys, keys, 64), mask="added"), TARGET)
    text = generated(s.function, TARGET).assembly()
    assert ".local" not in text, "what threads keep is in registers"
    assert "cvt.rn.f16x2.f32" in text, "factors are rounded by pairs"
    assert "ex2.approx.ftz.f32" in text
    assert text.rindex("cp.async.cg") < text.index("ex2."), "values come while rows are summed up"


@pytest.mark.parametrize("heads", [2, 4, 5, 6])
def test_blocks_that_go_through_several_tiles(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks have as many, if about as many blocks as multiprocessors can."""
    few = GPUS["sm_90a"]._replace(multiprocessors=4)
    monkeypatch.setitem(GPUS, "sm_90a", few)
    n, target = Sizes(1, heads, 256, 256, 72), tw.Target.of("cuda -arch=sm_90a")
    s = scheduled(attention(n, mask="added"), target, replace(RULES_BY_ADDRESS, taken={CHOICE: 1}))
    blocks, tiles = {2: (4, 1), 4: (4, 2), 5: (10, 1), 6: (4, 3)}[heads]
    around = rf'thread\({blocks}, "blockIdx.x"\):' + rf"\s+for \w+ in range\({tiles}, .*\):" * (
        tiles > 1
    )
    assert len(launches_of(s.function)) == 1 and re.search(around, str(s.function))
    given = inputs(n, "added", "float16")
    (answer,) = run(s.function, given, [((1, 256, heads, 72), "float16")])
    np.testing.assert_allclose(
        answer.astype("float64"), expected(given, "added"), rtol=3e-3, atol=3e-3
    )


@pytest.mark.parametrize(("keys", "crosses"), [(640, False), (512, True)])
def test_a_tile_begins_while_the_one_before_ends(
    keys: int, crosses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each tile has as many chunks as fill the versions in shared memory: their places stay
    the same from tile to tile."""
    few = GPUS["sm_90a"]._replace(multiprocessors=1)
    monkeypatch.setitem(GPUS, "sm_90a", few)
    target, n = tw.Target.of("cuda -arch=sm_90a"), Sizes(1, 1, 256, keys, 80)
    s = scheduled(attention(n), target)
    text = str(lowered(s.function, target))
    assert text.count("products_start()") == (6 if crosses else 4), "the next tile's are there"
    given = inputs(n, "", "float16")
    (answer,) = run(s.function, given, [((1, 256, 1, 80), "float16")])
    np.testing.assert_allclose(answer.astype("float64"), expected(given, ""), rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("size", [64, 128])
def test_code_with_a_running_maximum(size: int) -> None:
    """Groups of warps multiply, and threads of a row exchange what they know of it without a
    barrier. The second product of a chunk goes on while the next chunk begins: the first chunk and
    the last product stand outside of the loop. Of heads that leave room for one block of threads,
    the next tile's first chunk begins beside this last product."""
    crosses = size == 128
    s = RULES_BY_ADDRESS.schedule(attention(Sizes(8, 16, 512, 512, size)), TARGET)
    text = generated(s.function, TARGET).assembly()
    assert ".local" not in text, "what threads keep is in registers"
    products = text.count("wgmma.mma_async")
    assert products == (2 + crosses) * (size // 16 + 128 // 16), "scores, and results"
    waits = Counter(re.findall(r"wgmma.wait_group.sync.aligned (\d)", text))
    assert waits == {"0": 3 + crosses, "1": 1 + crosses}, "some are for scores alone"
    exchanged = text.count("shfl.sync.idx")
    joined = (1 + crosses) * size // 8
    assert exchanged == 24 + 16 * crosses + joined, (
        "maxima and totals of two rows; pairs of results"
    )
    meetings = Counter(re.findall(r"bar\.\w+\s+[0%]", text.replace("\t", "")))
    assert meetings["bar.sync 0"] == (0 if size == 128 else 3), "two groups take turns"
    assert "ld.shared" not in text, "threads read nothing of shared memory"
