"""Models with small inputs and outputs, which runs copy: every run has arrays of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder
from tilewright.ir import DType
from tilewright.runtime import executor
from tilewright.runtime.binding import TensorSpec
from tilewright.runtime.small_inputs import SmallInputs
from tilewright.support.errors import UserError


def model(size: int | str = 8) -> Any:
    """x + 1 and the sum of x and a state, which is the next state."""
    b = Builder()
    x, state = b.input("x", "f32", (2, size)), b.input("state", "i32", (size,))
    b.output(b.add(x, np.float32(1)))
    b.output(b.add(state, b.cast(b.sum(x, axes=[0]), dtype="i32")))
    return tw.compile(b.build(), threads=1)


def check(results: Any, x: Any, state: Any) -> None:
    np.testing.assert_array_equal(results[0], x + 1)
    np.testing.assert_array_equal(results[1], state + x.sum(0).astype(np.int32))


SIZES = pytest.mark.parametrize("size", [8, "n"])


@pytest.mark.parametrize("size", [8, 5000])
def test_results_of_a_run_stay_as_they_are(size: int) -> None:
    made, first = model(size), np.full((2, size), 3, np.float32)
    state = np.arange(size, dtype=np.int32)
    kept = made.run([first, state])
    again = made.run({"x": first * 2, "state": kept[1]})
    check(kept, first, state)
    check(again, first * 2, kept[1])
    assert not any(np.shares_memory(a, b) for a in kept for b in (*again, first, state))


@pytest.mark.parametrize(
    "given",
    [
        lambda x: x[:, ::2],
        lambda x: np.asfortranarray(x[:, :8]),
        lambda x: np.frombuffer(x[:, :8].tobytes(), np.float32).reshape(2, 8),
        lambda x: x[:, :8].tolist(),
        lambda x: x[:, :8].view(np.matrix),
    ],
    ids=["with gaps", "columns first", "read-only", "a list", "a matrix"],
)
@SIZES
def test_arrays_of_all_kinds(given: Any, size: int | str) -> None:
    made, state = model(size), np.arange(8, dtype=np.int32)
    x = given(np.arange(32, dtype=np.float32).reshape(2, 16))
    for _ in range(2):
        check(made.run([x, state]), np.array(x), state)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 8), np.float64), r"must be float32\[2, (8|n)\]"),
        (np.zeros((2, 1), np.float32), "got the shape"),
        (np.zeros(8, np.float32), "got 1 dimensions"),
        (np.zeros((2, 8), ">f4"), "byte order"),
    ],
)
@SIZES
def test_others_are_refused(x: Any, message: str, size: int | str) -> None:
    made, state = model(size), np.arange(8, dtype=np.int32)
    check(made.run([np.ones((2, 8), np.float32), state]), np.ones((2, 8), np.float32), state)
    with pytest.raises(UserError, match=message):
        made.run([x, state])


@SIZES
def test_threads_do_not_share_arrays(size: int | str) -> None:
    made, state = model(size), np.arange(8, dtype=np.int32)

    def run(number: int) -> None:
        x = np.full((2, 8), number, np.float32)
        for _ in range(200):
            check(made.run([x, state]), x, state)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


@SIZES
def test_addresses_are_found_once(monkeypatch: pytest.MonkeyPatch, size: int | str) -> None:
    made, state = model(size), np.arange(8, dtype=np.int32)
    x = np.ones((2, 8), np.float32)
    for _ in range(2):
        made.run([x, state])

    def refused(*_: Any) -> Any:
        raise AssertionError("a call was bound again")

    monkeypatch.setattr(executor, "native_inputs", refused)
    made.set_threads(2)
    check(made.run([x, state]), x, state)


@SIZES
def test_tensors_are_arrays(monkeypatch: pytest.MonkeyPatch, size: int | str) -> None:
    """Those of PyTorch are copied like arrays, and do not pass through DLPack."""
    torch: Any = pytest.importorskip("torch")
    made, state = model(size), np.arange(8, dtype=np.int32)
    x = torch.arange(16.0).reshape(2, 8)
    for _ in range(2):
        made.run([x, state])

    def refused(*_: Any) -> Any:
        raise AssertionError("a tensor went another way")

    monkeypatch.setattr(executor, "native_inputs", refused)
    monkeypatch.setattr(np, "from_dlpack", refused)
    check(made.run([x, state]), x.numpy(), state)
    check(made.run({"state": torch.from_numpy(state), "x": x}), x.numpy(), state)
    check(made.run([x.T.contiguous().T, state]), x.numpy(), state)


@SIZES
def test_outputs_whose_sizes_the_run_finds_out(
    monkeypatch: pytest.MonkeyPatch, size: int | str
) -> None:
    """Calls are kept for these models too, also by several threads and after errors."""
    b = Builder()
    x = b.input("x", "f32", (2, size))
    b.output(b.non_zero(x))
    b.output(b.add(x, np.float32(1)))
    made = tw.compile(b.build(), threads=1)
    arrays = [np.float32(np.random.default_rng(k).integers(0, 2, (2, 8))) for k in range(4)]
    made.run([arrays[0]])

    def refused(*_: Any) -> Any:
        raise AssertionError("a call was bound again")

    def run(number: int) -> None:
        mine, kept = arrays[number], made.run([arrays[number]])
        for _ in range(100):
            places, more = made.run([mine])
            np.testing.assert_array_equal(places, np.array(np.nonzero(mine)))
            np.testing.assert_array_equal(more, mine + 1)
        np.testing.assert_array_equal(kept[0], np.array(np.nonzero(mine)))
        np.testing.assert_array_equal(kept[1], mine + 1)

    monkeypatch.setattr(executor, "in_order", refused)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert made.run([np.zeros((2, 8), np.float32)])[0].shape == (2, 0)


def test_free_sizes_that_change() -> None:
    """More shapes than are remembered, in any order; large ones are not copied."""
    made = model("n")
    for size in (*range(40), 8, 5000, 3, 5000, *range(40)):
        state = np.arange(size, dtype=np.int32)
        x = np.full((2, size), size, np.float32)
        kept = made.run([x, state])
        check(made.run({"state": kept[1], "x": x}), x, kept[1])
        check(kept, x, state)


def test_calls_that_need_much_memory_do_not_keep_it() -> None:
    found = SmallInputs([TensorSpec("x", DType.of("f32"), ("n",))], [])
    x = np.zeros(3, np.float32)
    found.learn([(3,)], [], workspace=64 << 20)
    assert found.taken([x]) is None
    found.learn([(3,)], [], workspace=1000)
    assert found.taken([x]) is not None


@pytest.mark.parametrize("types", [("u8", "f32"), ("bf16", "i8"), ("i8", "i8")])
def test_inputs_of_other_types_side_by_side(types: tuple[str, str]) -> None:
    """Elements lie where their types need it, and types that others do not know are copied too."""
    b = Builder()
    first, second = (b.input(n, t, (3,)) for n, t in zip("xy", types, strict=True))
    b.output(b.cast(first, dtype="f32"))
    b.output(b.cast(second, dtype="f32"))
    made = tw.compile(b.build(), threads=1)
    given = [np.array([1, 2, 3 + k]).astype(DType.of(t).numpy) for k, t in enumerate(types)]
    for _ in range(2):
        for result, value in zip(made.run(given), given, strict=True):
            np.testing.assert_array_equal(result, value.astype(np.float32))


def test_names_are_looked_at() -> None:
    b = Builder()
    b.output(b.add(b.input("x", "f32", (3,)), np.float32(1)))
    made, x = tw.compile(b.build(), threads=1), np.zeros(3, np.float32)
    np.testing.assert_array_equal(made.run({"x": x})[0], x + 1)
    with pytest.raises(UserError, match="the model has no input y"):
        made.run({"y": x})
    with pytest.raises(UserError, match="input x is missing"):
        made.run({})
    pair, state = model(), np.arange(8, dtype=np.int32)
    with pytest.raises(UserError, match="the model has no input s"):
        pair.run({"x": np.ones((2, 8), np.float32), "s": state})


def test_words_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is bound takes the same words again, until there are other threads."""
    made, state = model(), np.arange(8, dtype=np.int32)
    x = np.ones((2, 8), np.float32)
    bound = made.bind([x, state])
    bound()
    packed: list[int] = []

    def counted(*words: int) -> bytes:
        packed.append(len(words))
        return before(*words)

    before = made._packed
    monkeypatch.setattr(made, "_packed", counted)
    check(bound(), x, state)
    assert not packed
    made.set_threads(2)
    check(bound(), x, state)
    check(bound(), x, state)
    assert len(packed) == 1


def test_outputs_of_the_callers() -> None:
    made, state = model(), np.arange(8, dtype=np.int32)
    x, own = np.ones((2, 8), np.float32), np.zeros((2, 8), np.float32)
    results = made.run([x, state], out=[own])
    assert results[0] is own
    check(results, x, state)
