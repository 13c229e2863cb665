"""Attention written with plain operators becomes one kernel, and answers stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.compile import graph_passes
from tilewright.graph import (
    Builder,
    KernelTable,
    Module,
    PassContext,
    evaluate,
    kernel_bindings,
    run_passes,
)
from tilewright.ir import Alloc, Block, walk
from tilewright.kernels.pipeline import lowered
from tilewright.schedule import schedule_by_rules
from tilewright.schedule.rules.analysis import as_contraction

RNG = np.random.default_rng(5)
TARGET = tw.Target.of("llvm")
LOOSE: Any = {"f32": {"rtol": 2e-5, "atol": 2e-5}, "f64": {"rtol": 1e-12, "atol": 1e-12}}


def normal(*shape: int, dtype: str = "f32") -> Any:
    return RNG.standard_normal(shape).astype({"f32": "f4", "f64": "f8", "f16": "f2"}[dtype])


def split_heads(b: Builder, x: Any, heads: int, axes: tuple[int, ...] = (0, 2, 1, 3)) -> Any:
    batch, length, width = x.shape
    return b.transpose(b.reshape(x, shape=[batch, length, heads, width // heads]), axes=axes)


def attention(
    shape: tuple[Any, Any, Any],
    heads: int,
    keys: Any = None,
    mask: str = "",
    dtype: str = "f32",
) -> Module:
    """softmax(q @ k.T / 2 + mask) @ v for heads that lie side by side in rows."""
    b = Builder()
    batch, length, width = shape
    keys = length if keys is None else keys
    q = split_heads(b, b.input("q", dtype, shape), heads)
    k = split_heads(b, b.input("k", dtype, (batch, keys, width)), heads, (0, 2, 3, 1))
    v = split_heads(b, b.input("v", dtype, (batch, keys, width)), heads)
    scores = b.matmul(q, k) * np.asarray(0.5, {"f32": "f4", "f64": "f8", "f16": "f2"}[dtype])
    if mask == "added":
        scores = scores + b.input("mask", dtype, (batch, 1, length, keys))
    if mask == "keys":
        scores = scores + b.input("mask", dtype, (batch, 1, 1, keys))
    if mask == "chosen":
        seen = b.input("mask", "bool", (1, 1, length, keys))
        scores = b.where(seen, scores, np.array(-np.inf, scores.dtype.numpy))
    shares = b.softmax(scores)
    if mask == "chosen":
        shares = b.where(b.isnan(shares), np.zeros((), scores.dtype.numpy), shares)
    result = b.transpose(b.matmul(shares, v), axes=[0, 2, 1, 3])
    shape_out = [result.shape[0], result.shape[1], result.shape[2] * result.shape[3]]
    b.output(b.reshape(result, shape=shape_out))
    return b.build()


def kernels(module: Module, level: int = 3) -> list[Any]:
    with PassContext(opt_level=level):
        fused = run_passes(module, graph_passes(TARGET))
    table = KernelTable()
    return [table(b).function for b in kernel_bindings(fused.main)]


def holds(module: Module, arrays: list[Any], dtype: str = "f32") -> Any:
    """The answer, once it is known to be that of the reference."""
    (wanted,) = evaluate(module, arrays)
    (got,) = tw.compile(module, TARGET, threads=2, opt_level=3).run(arrays)
    np.testing.assert_allclose(got, wanted, **LOOSE[dtype])
    return wanted


def inputs(batch: int, length: int, keys: int, width: int, dtype: str = "f32") -> list[Any]:
    sizes = (length, keys, keys)
    return [normal(batch, n, width, dtype=dtype) for n in sizes]


@pytest.mark.parametrize(("heads", "length", "keys"), [(1, 7, 7), (12, 33, 33), (3, 13, 50)])
def test_odd_sizes(heads: int, length: int, keys: int) -> None:
    module = attention((2, length, heads * 8), heads, keys)
    assert len(kernels(module)) == 1
    holds(module, inputs(2, length, keys, heads * 8))


@pytest.mark.parametrize("width", [5, 20])
def test_odd_widths(width: int) -> None:
    module = attention((1, 19, 2 * width), 2)
    assert len(kernels(module)) == 1
    holds(module, inputs(1, 19, 19, 2 * width))


@pytest.mark.parametrize(("mask", "heads"), [("added", 4), ("keys", 1), ("chosen", 4)])
def test_masks_and_rows_that_see_nothing(mask: str, heads: int) -> None:
    module = attention((2, 21, heads * 8), heads, 18, mask)
    assert len(kernels(module)) == 1
    shape = {"added": (2, 1, 21, 18), "keys": (2, 1, 1, 18), "chosen": (1, 1, 21, 18)}[mask]
    seen = RNG.integers(0, 2, shape).astype(bool)
    seen[..., 0] = True
    seen[-1, :, -1] = False
    given = seen if mask == "chosen" else np.where(seen, 0.0, -np.inf).astype("f4")
    answer = holds(module, [*inputs(2, 21, 18, heads * 8), given])
    assert np.isnan(answer).any() == (mask != "chosen")


def test_numbers_that_are_none_stay_in_their_rows() -> None:
    module = attention((1, 17, 16), 2, 11)
    q, k, v = inputs(1, 17, 11, 16)
    q[0, 3] = np.nan
    q[0, 4, :8] = np.inf
    answer = holds(module, [q, k, v])
    assert np.isnan(answer[0, 3]).all()
    assert np.isfinite(answer[0, 5:]).all()


def test_a_causal_mask_by_position() -> None:
    b = Builder()
    q, k, v = (b.input(n, "f32", (3, 29, 12)) for n in "qkv")
    at = np.arange(29)
    scores = b.where(at[:, None] >= at, b.matmul(q, k, transpose_b=True), np.float32(-1e9))
    b.output(b.matmul(b.softmax(scores), v))
    module = b.build()
    assert len(kernels(module)) == 1
    holds(module, inputs(3, 29, 29, 12))


def test_one_operand_for_all() -> None:
    """Queries, keys and values are parts of one product."""
    b = Builder()
    x = b.reshape(b.input("x", "f32", (2, 23, 3 * 4 * 8)), shape=[2, 23, 3, 4, 8])
    q, k, v = (
        b.reshape(
            b.slice(b.transpose(x, axes=[2, 0, 3, 1, 4]), starts=[n], ends=[n + 1], axes=[0]),
            shape=[2, 4, 23, 8],
        )
        for n in range(3)
    )
    b.output(b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v))
    module = b.build()
    assert len(kernels(module)) == 1
    holds(module, [normal(2, 23, 96)])


def test_keys_that_heads_share() -> None:
    b = Builder()
    q = b.input("q", "f32", (1, 6, 15, 8))
    k, v = (b.input(n, "f32", (1, 2, 15, 8)) for n in "kv")
    many = [
        b.reshape(
            b.expand(b.reshape(x, shape=[1, 2, 1, 15, 8]), shape=[1, 2, 3, 15, 8]),
            shape=[1, 6, 15, 8],
        )
        for x in (k, v)
    ]
    b.output(b.matmul(b.softmax(b.matmul(q, many[0], transpose_b=True)), many[1]))
    module = b.build()
    assert len(kernels(module)) == 1
    holds(module, [normal(1, 6, 15, 8), normal(1, 2, 15, 8), normal(1, 2, 15, 8)])


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("pixels", [6, 49])
def test_values_that_lie_in_columns(blocked: bool, pixels: int) -> None:
    """Heads are channels of an image: values are copied so that vectors of them can be read."""
    b = Builder()
    shape = (1, 6, pixels, 16) if blocked else (1, 96, pixels)
    image = b.input("x", "f32", shape)
    channels = b.reshape(
        b.from_blocked(image, channels=96) if blocked else image, shape=[1, 4, 24, pixels]
    )
    q, k, v = (b.slice(channels, starts=[n], ends=[n + 8], axes=[2]) for n in (0, 8, 16))
    scores = b.softmax(b.matmul(b.transpose(q, axes=[0, 1, 3, 2]), k))
    b.output(b.matmul(scores, b.transpose(v, axes=[0, 1, 3, 2])))
    module = b.build()
    (kernel,) = kernels(module)
    holds(module, [normal(*shape)])
    blocks = [x for x in walk(schedule_by_rules(kernel, TARGET).body) if isinstance(x, Block)]
    product = as_contraction(next(x for x in reversed(blocks) if as_contraction(x)))
    assert product is not None
    assert product.b.step_within(product.columns[0].var, TARGET.lanes("f32")) == 1


@pytest.mark.parametrize("mask", ["", "added"])
def test_lengths_that_are_known_when_it_runs(mask: str) -> None:
    module = attention(("n", "s", 32), 4, "m", mask)
    assert len(kernels(module)) == 1
    model = tw.compile(module, TARGET, opt_level=3)
    for n, s, m in ((2, 21, 18), (1, 1, 1), (1, 1, 40), (3, 8, 5), (0, 4, 4), (1, 130, 67)):
        arrays = inputs(n, s, m, 32) + ([normal(n, 1, s, m)] if mask else [])
        (wanted,) = evaluate(module, arrays)
        np.testing.assert_allclose(model.run(arrays)[0], wanted, **LOOSE["f32"])


def test_doubles() -> None:
    module = attention((2, 27, 24), 3, 19, "added", "f64")
    assert len(kernels(module)) == 1
    holds(module, [*inputs(2, 27, 19, 24, "f64"), normal(2, 1, 27, 19, dtype="f64")], "f64")


def test_halves_and_single_tokens_and_nothing_at_all() -> None:
    half = attention((1, 9, 16), 2, dtype="f16")
    arrays = inputs(1, 9, 9, 16, "f16")
    (got,), (wanted,) = tw.compile(half).run(arrays), evaluate(half, arrays)
    np.testing.assert_allclose(got, wanted, rtol=4e-3, atol=4e-3)
    holds(attention((1, 1, 16), 2, 12), inputs(1, 1, 12, 16))
    holds(attention((0, 9, 16), 2, 12), inputs(0, 9, 12, 16))


def test_scores_that_something_else_reads_stay() -> None:
    b = Builder()
    q, k, v = (b.input(n, "f32", (2, 12, 8)) for n in "qkv")
    shares = b.softmax(b.matmul(q, k, transpose_b=True))
    b.output(b.matmul(shares, v), shares)
    assert len(kernels(b.build())) > 1


def test_no_more_than_a_block_of_scores_is_in_memory() -> None:
    module = attention((1, 256, 64), 4)
    (function,) = kernels(module)
    scheduled = schedule_by_rules(function, TARGET)
    flat = lowered(scheduled, TARGET)
    allocs = [a for a in walk(flat.body) if isinstance(a, Alloc)]
    largest = max(buffer.static_size() or 0 for a in allocs for buffer in a.buffers)
    assert largest <= 256 * 64


@pytest.mark.parametrize("length", [64, 50, "n"])
@pytest.mark.parametrize("cpu", ["skylake-avx512", "haswell", "neoverse-n1"])
def test_rows_and_masks_are_transposed_in_registers(cpu: str, length: int | str) -> None:
    """Storing vectors element by element, far apart, took an eighth of the time with AVX-512."""
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    module = attention((1, length, 128), 4, mask="added")
    with PassContext(opt_level=3):
        fused = run_passes(module, graph_passes(target))
    (binding,) = kernel_bindings(fused.main)
    s = schedule_by_rules(KernelTable()(binding).function, target)
    names = {b.annotations.get("tensor_intrin", "") for b in walk(s.body) if isinstance(b, Block)}
    squares = [n for n in names if str(n).startswith("transpose.")]
    assert squares and not s.attrs.get("refused")
    copies = [b for b in walk(s.body) if isinstance(b, Block) and "tensor_intrin" in b.annotations]
    assert len({b.writes[0].buffer for b in copies}) == 2


@settings(max_examples=3, deadline=None)
@given(
    st.integers(2, 24),
    st.integers(2, 24),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from(["", "added", "keys"]),
)
def test_any_sizes(length: int, keys: int, heads: int, depth: int, mask: str) -> None:
    module = attention((1, length, heads * depth), heads, keys, mask)
    shape = {"added": (1, 1, length, keys), "keys": (1, 1, 1, keys)}.get(mask)
    arrays = inputs(1, length, keys, heads * depth)
    holds(module, arrays if shape is None else [*arrays, normal(*shape)])


def test_the_operator_reads_heads_where_they_lie() -> None:
    b = Builder()
    parts = [b.input(n, "f32", (2, 14, 24)) for n in "qkv"]
    q, k, v = (split_heads(b, x, 3) for x in parts)
    b.output(b.attention(q, k, v, causal=True))
    module = b.build()
    assert len(kernels(module)) == 1
    holds(module, inputs(2, 14, 14, 24))
