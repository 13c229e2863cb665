"""Sequences and optionals in compiled programs, held against the evaluator."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import (
    ANY,
    Builder,
    OptionalType,
    SequenceType,
    TensorType,
    UnknownType,
    Value,
    evaluate,
    module_text,
    parse_module,
)
from tilewright.models.model import Model
from tilewright.support.errors import UserError

ROWS = SequenceType(TensorType("f32", [ANY, 2]))


def rows(*counts: int) -> list[Any]:
    """Arrays of so many rows each, all elements different."""
    starts = np.cumsum([0, *counts])
    return [
        np.arange(2 * a, 2 * a + 2 * n, dtype="f4").reshape(n, 2)
        for a, n in zip(starts, counts, strict=False)
    ]


def compiled(b: Builder, level: int = 1) -> Model:
    model = tw.compile(b.build(), threads=1, opt_level=level)
    assert isinstance(model, Model)
    return model


def check(b: Builder, *inputs: Any, level: int = 1) -> list[Any]:
    """What the compiled program gives, which must be what the evaluator gives."""
    got, want = compiled(b, level).run(list(inputs)), evaluate(b.build(), list(inputs))
    same(got, want)
    return got


def same(got: Any, want: Any) -> None:
    if want is None or isinstance(want, list):
        assert type(got) is type(want)
        for g, w in zip(got or [], want or [], strict=True):
            same(g, w)
        return
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5)


def number(b: Builder, value: int) -> Value:
    return b.constant(value, "i64")


# ---- operators ----------------------------------------------------------------------------------


def test_sequences_are_made_changed_and_read() -> None:
    b = Builder()
    x, y = b.input("x", "f32", ("n", 2)), b.input("y", "f32", (3, 2))
    both = b.sequence(b.relu(x), y)
    three = b.sequence_insert(both, b.exp(y), number(b, 1))
    more = b.sequence_insert(three, x)
    fewer = b.sequence_erase(more, number(b, -3))
    one = b.sequence_at(fewer, number(b, -1))
    b.output(both, three, more, fewer, b.relu(one), b.sequence_erase(both))
    b.output(b.sequence_length(fewer), b.sequence_empty(dtype="i32"))
    check(b, *rows(4, 3))


@pytest.mark.parametrize(("axis", "new_axis"), [(0, False), (1, False), (-1, True), (0, True)])
def test_items_are_joined_and_stacked(axis: int, new_axis: bool) -> None:
    b = Builder()
    items = b.input("items", SequenceType(TensorType("f32", [ANY, ANY, ANY])))
    b.output(b.concat_from_sequence(items, axis=axis, new_axis=new_axis))
    shapes: list[tuple[int, ...]] = [(2, 3, 4)] * 3
    if not new_axis:
        shapes[1] = tuple(n + 2 * (k == axis) for k, n in enumerate(shapes[1]))
    check(b, [np.random.default_rng(k).random(s, "f4") for k, s in enumerate(shapes)])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("parts", ["one", "even", "sizes", "dropped"])
def test_tensors_are_cut(axis: int, parts: str) -> None:
    b = Builder()
    x = b.input("x", "i16", ("n", 5, "m"))
    given = {"even": b.input("step", "i64"), "sizes": b.input("sizes", "i64", ("k",))}
    cut = b.split_to_sequence(x, given.get(parts), axis=axis, keep_axis=parts != "dropped")
    b.output(cut, b.sequence_length(cut))
    check(b, np.arange(5**3, dtype="i2").reshape(5, 5, 5), np.int64(2), np.array([3, 0, 2]))


def test_optionals_hold_a_tensor_a_sequence_or_nothing() -> None:
    b = Builder()
    x, c = b.input("x", "f32", ("n", 2)), b.input("c", "bool")
    some, none = b.optional(b.relu(x)), b.optional_none(dtype="f32")
    maybe = b.branch(c, lambda: some, lambda: none)
    many = b.optional(b.sequence(x, x))
    nothing = b.optional_none(dtype="f32", sequence=True)
    listed = b.branch(c, lambda: many, lambda: nothing)
    b.output(maybe, listed, some, none, b.optional_has(maybe), b.optional_has(x))
    b.output(b.exp(b.optional_get(some)), b.optional_get(many), b.optional_get(x))
    for flag in (True, False):
        check(b, rows(3)[0], flag)


def test_an_optional_that_is_opened_only_where_it_holds_something() -> None:
    b = Builder()
    x = b.input("x", OptionalType(TensorType("f32", [ANY])))
    b.output(
        b.branch(
            b.optional_has(x),
            lambda: b.sum(b.optional_get(x), axes=[0]),
            lambda: b.constant(-1.0, "f32"),
        )
    )
    check(b, np.arange(4, dtype="f4"))
    check(b, None)


# ---- control flow -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 7])
def test_loops_carry_sequences(count: int) -> None:
    """One that grows, one that turns around, and one that is only looked at."""
    b = Builder()
    x, k = b.input("x", "f32", ("n", 2)), b.input("k", "i64")
    given = b.input("given", ROWS)

    def trip(i: Value, grown: Value, turned: Value, kept: Value) -> Any:
        item = b.sequence_at(kept, b.mod(i, b.sequence_length(kept)))
        first = b.sequence_at(turned, number(b, 0))
        following = b.sequence_insert(b.sequence_erase(turned, number(b, 0)), first)
        return [b.sequence_insert(grown, b.concat(item, x, axis=0)), following, kept]

    b.output(*b.loop(k, [b.sequence_empty(dtype="f32"), given, given], trip), given)
    check(b, rows(2)[0], np.int64(count), rows(1, 0, 3))


def test_a_sequence_that_only_some_trips_change() -> None:
    b = Builder()
    x, k = b.input("x", "f32", (3, 2)), b.input("k", "i64")

    def trip(i: Value, items: Value) -> Any:
        odd = b.equal(b.mod(i, number(b, 2)), number(b, 1))
        return [b.branch(odd, lambda: b.sequence_insert(items, x, number(b, 0)), lambda: items)]

    items = b.loop(k, [b.sequence(x)], trip)
    b.output(items, b.concat_from_sequence(items, axis=0))
    check(b, rows(3)[0], np.int64(5))


def test_loops_inside_loops_collect_into_one_sequence() -> None:
    b = Builder()
    given, k = b.input("given", ROWS), b.input("k", "i64")

    def inner(j: Value, all_: Value) -> Any:
        return [b.sequence_insert(all_, b.relu(b.sequence_at(given, j)))]

    def outer(i: Value, all_: Value, first: Value) -> Any:
        grown = b.loop(b.sequence_length(given), [all_], inner)
        return [grown, b.sequence_at(grown, number(b, -1))]

    start = b.sequence_at(given, number(b, 0))
    b.output(*b.loop(k, [b.sequence_empty(dtype="f32"), start], outer))
    check(b, rows(1, 2, 1), np.int64(2))


def test_a_loop_that_carries_an_optional() -> None:
    b = Builder()
    k = b.input("k", "i64")

    def trip(i: Value, last: Value) -> Any:
        square = b.cast(b.mul(i, i), dtype="f32")
        return [b.optional(b.expand(square, shape=[2]))]

    b.output(b.loop(k, [b.optional_none(dtype="f32")], trip))
    assert check(b, np.int64(0)) == [None]
    check(b, np.int64(3))


def test_what_is_taken_out_outlives_changes_to_its_sequence() -> None:
    b = Builder()
    items, x = b.input("items", ROWS), b.input("x", "f32", (1, 2))
    longer = b.sequence_insert(items, x)
    item = b.sequence_at(longer, number(b, 0))
    shorter = b.sequence_erase(longer, number(b, 0))
    shorter = b.sequence_erase(shorter, number(b, 0))
    b.output(shorter, b.exp(item), item)
    check(b, rows(2, 1), rows(1)[0])


def test_one_value_is_several_results() -> None:
    """Sequences, and tensors whose sizes are known only in the end."""
    b = Builder()
    x = b.input("x", "f32", ("n",))
    found = b.non_zero(x)
    items = b.sequence(x)

    def side() -> Any:
        more = b.sequence_insert(items, x)
        late = b.non_zero(b.relu(x))
        flat = b.reshape(late, shape=[-1])
        return more, b.optional(more), more, late, flat, late

    results = b.branch(b.input("c", "bool"), side, side)
    b.output(*results, items, items, found, b.reshape(found, shape=[-1]), found)
    check(b, np.array([1, 0, 2], "f4"), True)


def test_items_of_different_ranks() -> None:
    b = Builder()
    x, k = b.input("x", "f32", ("n", 2)), b.input("k", "i64")

    def trip(i: Value, items: Value) -> Any:
        return [b.sequence_insert(items, b.sum(x, axes=[1]))]

    items = b.loop(k, [b.sequence(x)], trip)
    assert str(items.type) == "seq[f32[...]]"
    same_type = b.branch(b.input("c", "bool"), lambda: items, lambda: b.sequence(x))
    assert same_type.type == items.type
    b.output(items, same_type, b.sequence_erase(items, number(b, 0)), b.sequence_length(items))
    for count in (0, 2):
        check(b, rows(3)[0], np.int64(count), count == 0)
    assert parse_module(module_text(b.build())).main.results[0].type == items.type
    with pytest.raises(UserError, match="ranks of the items of loop are not known: they differ"):
        b.sequence_at(items, number(b, 0))


def test_items_that_are_not_what_the_program_was_built_for() -> None:
    """The rank of the first items is not told, and taken to be that of what joins them."""
    b = Builder()
    items = b.input("items", SequenceType(UnknownType("f32")))
    longer = b.sequence_insert(items, b.constant(np.ones((2, 2)), "f32"))
    first = b.sequence_at(longer, number(b, 0))
    b.output(b.relu(first))
    check(b, rows(2))
    model = compiled(b)
    with pytest.raises(UserError, match="sequence_at: an item has 1 dimensions, not 2"):
        model.run([[np.ones(4, "f4")]])
    with pytest.raises(UserError, match="sequence_at: dimension 1 of item 0 is 9, not 2"):
        model.run([[np.ones((2, 9), "f4")]])


# ---- the border ---------------------------------------------------------------------------------


def test_sequences_and_optionals_come_in_and_go_out_as_they_are() -> None:
    b = Builder()
    items = b.input("items", SequenceType(UnknownType("i8")))
    maybe = b.input("maybe", OptionalType(SequenceType(TensorType("f64", [ANY]))))
    b.output(items, maybe, b.sequence_length(items), b.optional_has(maybe))
    model = compiled(b)
    assert [str(s) for s in model.inputs] == [
        "items: seq[int8]",
        "maybe: opt[seq[float64[_]]]",
    ]
    mixed = [np.ones((2, 0), "i1"), np.int8(3), np.arange(4, dtype="i1")]
    strided = [np.arange(6.0)[::2], np.empty(0)]
    for second in (None, [], strided):
        same(model.run([mixed, second])[:2], [[np.asarray(a) for a in mixed], second])


def test_dimensions_that_only_items_tell() -> None:
    b = Builder()
    n = b.dim("n")
    items = b.input("items", SequenceType(TensorType("f32", [n, 2])))
    b.output(b.concat_from_sequence(items, axis=1))
    assert check(b, rows(3, 3))[0].shape == (3, 4)
    with pytest.raises(UserError, match=r"items\[1\] must be float32\[n, 2\].*got the shape"):
        compiled(b).run([rows(3, 2)])
    with pytest.raises(UserError, match="no input determines the dimension n"):
        compiled(b).run([[]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "input items must be seq.*got NoneType.*list of arrays"),
        (np.ones((2, 2), "f4"), "input items must be seq.*got ndarray"),
        ([np.ones((2, 2), "f8")], r"items\[0\] must be float32\[2, 2\].*got float64"),
        ([np.ones((2, 2), "f4"), np.ones(2, "f4")], r"items\[1\] must be .*got 1 dimensions"),
        ([np.ones((2, 3), "f4")], r"items\[0\] must be float32\[2, 2\].*got the shape \[2, 3\]"),
    ],
)
def test_what_is_no_such_sequence_is_refused(given: Any, message: str) -> None:
    b = Builder()
    b.output(b.sequence_length(b.input("items", ROWS)))
    with pytest.raises(UserError, match=f"(?s){message}"):
        compiled(b).run([given])


def test_an_array_for_a_sequence_that_comes_out_is_refused() -> None:
    b = Builder()
    b.output(b.input("items", ROWS))
    with pytest.raises(UserError, match="output items cannot be written to an array"):
        compiled(b).run([rows(1)], out=[np.ones(2)])
    with pytest.raises(UserError, match="cannot bind the model to arrays"):
        compiled(b).bind([rows(1)])


def test_native_parts_of_programs_with_strings_take_and_give_sequences() -> None:
    b = Builder()
    words, items = b.input("words", "string", (2,)), b.input("items", ROWS)
    longer = b.sequence_insert(items, b.exp(b.sequence_at(items, number(b, 0))))
    twice = b.string_concat(words, words)
    thrice = b.string_concat(twice, words)
    b.output(thrice, longer, b.concat_from_sequence(longer, axis=0))
    with pytest.warns(UserWarning, match=r"on the host, not natively: string_concat \(2\)$"):
        model = tw.compile(b.build(), threads=1, opt_level=1)
    given = [np.array(["a", "b"], object), rows(2, 1)]
    got, want = model.run(given), evaluate(b.build(), given)
    assert got[0].tolist() == want[0].tolist() == ["aaa", "bbb"]
    same(got[1:], want[1:])


# ---- failures -----------------------------------------------------------------------------------

Change = Callable[[Builder, Value, Value], Value]


@pytest.mark.parametrize(
    ("change", "position", "message"),
    [
        (lambda b, s, k: b.sequence_at(s, k), 2, "a sequence of 2 has no position 2"),
        (lambda b, s, k: b.sequence_at(s, k), -3, "a sequence of 2 has no position -3"),
        (lambda b, s, k: b.sequence_erase(s, k), 2, "a sequence of 2 has no position 2"),
        (
            lambda b, s, k: b.sequence_insert(s, b.constant(np.ones((1, 2)), "f32"), k),
            3,
            "sequence_insert: a sequence of 2 has no position 3",
        ),
        (
            lambda b, s, k: b.split_to_sequence(b.sequence_at(s, number(b, 0)), k),
            0,
            "parts of 0 make up nothing",
        ),
        (
            lambda b, s, k: b.split_to_sequence(
                b.sequence_at(s, number(b, 0)), b.reshape(k, shape=[1])
            ),
            7,
            "the parts make up 7, not 2",
        ),
        (
            lambda b, s, k: b.concat_from_sequence(s, axis=1),
            0,
            "dimension 0 of item 1 is 1, not 2",
        ),
    ],
)
def test_what_is_not_there_is_told(change: Change, position: int, message: str) -> None:
    b = Builder()
    items, k = b.input("items", ROWS), b.input("k", "i64")
    b.output(change(b, items, k))
    with pytest.raises(UserError, match=message):
        compiled(b).run([rows(2, 1), np.int64(position)])
    with pytest.raises(UserError):
        evaluate(b.build(), [rows(2, 1), np.int64(position)])


def test_nothing_is_opened_and_nothing_is_joined() -> None:
    b = Builder()
    items = b.input("items", OptionalType(ROWS))
    b.output(b.concat_from_sequence(b.optional_get(items), axis=0))
    model = compiled(b)
    with pytest.raises(UserError, match="an optional that holds nothing was opened"):
        model.run([None])
    with pytest.raises(UserError, match="the sequence is empty"):
        model.run([[]])


# ---- memory and threads -------------------------------------------------------------------------


def collecting() -> Builder:
    """A loop that collects 1 MB, drops some of it, and stops where `k` is too large."""
    b = Builder()
    x, k = b.input("x", "f32", (1 << 14,)), b.input("k", "i64")

    def trip(i: Value, items: Value) -> Any:
        return [b.sequence_insert(items, b.exp(x), number(b, 0))]

    items = b.loop(16, [b.sequence_empty(dtype="f32")], trip)
    b.output(b.sequence_erase(items), b.sequence_at(items, k))
    return b


def test_memory_stays_flat_whether_runs_succeed_or_fail() -> None:
    model = compiled(collecting())
    inputs = [np.zeros(1 << 14, "f4"), np.int64(3)]

    def runs(count: int) -> None:
        for _ in range(count):
            assert len(model.run(inputs)[0]) == 15
            with pytest.raises(UserError, match="no position 16"):
                model.run([inputs[0], np.int64(16)])

    runs(5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runs(100)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} KB more after 200 runs of 1 MB each"


def test_two_threads_share_a_model() -> None:
    b = Builder()
    items, k = b.input("items", ROWS), b.input("k", "i64")

    def trip(i: Value, grown: Value) -> Any:
        return [b.sequence_insert(grown, b.relu(b.sequence_at(items, number(b, 0))))]

    b.output(b.loop(k, [items], trip))
    model, shared, wrong = compiled(b), rows(2, 1), list[str]()

    def work(count: int) -> None:
        for _ in range(200):
            (got,) = model.run([shared, np.int64(count)])
            if len(got) != 2 + count or any((g != shared[0]).any() for g in got[2:]):
                wrong.append(f"{count}: {got}")

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- random programs ----------------------------------------------------------------------------


class _Random:
    """Programs of operators on sequences, at random, with branches and loops around them."""

    def __init__(self, seed: int) -> None:
        self.rng, self.b = np.random.default_rng(seed), Builder()
        self.sequences = [self.b.input("items", ROWS)]
        self.tensors = [self.b.input("x", "f32", (2, 2))]
        self.flag = self.b.input("c", "bool")

    def one(self, values: list[Value]) -> Value:
        return values[int(self.rng.integers(len(values)))]

    def step(self, depth: int) -> None:
        moves = [self.insert, self.insert, self.erase, self.at, self.join, self.make]
        moves += [self.branch, self.loop] if depth else []
        moves[int(self.rng.integers(len(moves)))](depth)

    def insert(self, _: int) -> None:
        at = number(self.b, 0) if self.rng.integers(2) else None
        grown = self.b.sequence_insert(self.one(self.sequences), self.one(self.tensors), at)
        self.sequences.append(grown)

    def erase(self, _: int) -> None:
        """All have an item or more, and keep one."""
        items = self.b.sequence_insert(self.one(self.sequences), self.one(self.tensors))
        self.sequences.append(self.b.sequence_erase(items, number(self.b, 0)))

    def at(self, _: int) -> None:
        item = self.b.sequence_at(self.one(self.sequences), number(self.b, -1))
        self.tensors.append(self.b.relu(item) if self.rng.integers(2) else item)

    def join(self, _: int) -> None:
        self.tensors.append(self.b.concat_from_sequence(self.one(self.sequences), axis=0))

    def make(self, _: int) -> None:
        self.sequences.append(self.b.sequence(self.one(self.tensors), self.one(self.tensors)))

    def inside(self, depth: int) -> Any:
        kept = len(self.sequences), len(self.tensors)
        for _ in range(3):
            self.step(depth - 1)
        results = [self.one(self.sequences), self.one(self.tensors)]
        del self.sequences[kept[0] :], self.tensors[kept[1] :]
        return results

    def branch(self, depth: int) -> None:
        sides = [lambda: tuple(self.inside(depth))] * 2
        self._add(self.b.branch(self.flag, *sides))

    def loop(self, depth: int) -> None:
        state = [self.one(self.sequences), self.one(self.tensors)]
        seed = int(self.rng.integers(1 << 30))

        def trip(_: Value, *carried: Value) -> Any:
            # The body is built again until the types of the state settle: the same way.
            self.rng = np.random.default_rng(seed)
            kept = len(self.sequences), len(self.tensors)
            self.sequences.append(carried[0])
            self.tensors.append(carried[1])
            results = self.inside(depth)
            del self.sequences[kept[0] :], self.tensors[kept[1] :]
            return results

        self._add(self.b.loop(2, state, trip))

    def _add(self, results: Any) -> None:
        self.sequences.append(results[0])
        self.tensors.append(results[1])


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int) -> None:
    made = _Random(seed)
    for _ in range(10):
        made.step(2)
    made.b.output(*made.sequences[-3:], *made.tensors[-3:])
    for flag in (True, False):
        check(made.b, rows(1, 2), rows(2)[0], flag, level=seed % 3)
