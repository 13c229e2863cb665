"""Attention on GPUs: which parts of a graph become one kernel, and what whole networks answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.half_networks import Weights, transformer
from tests.schedule.gpu.launches import launches_of
from tilewright.compile import graph_passes
from tilewright.graph import (
    Builder,
    KernelTable,
    PassContext,
    PassVerifier,
    kernel_bindings,
    run_passes,
)
from tilewright.graph import Module as Graph
from tilewright.graph.ir import Call, Fused
from tilewright.schedule import RULES_BY_ADDRESS
from tilewright.target import Target

Array = np.ndarray[Any, Any]
#: How far answers of magnitude 1 may be off in float16.
ERROR = 4e-3
PRODUCTS = ("matmul", "einsum")


def attention(rows: Any, keys: Any, size: int = 16, heads: int = 2) -> Graph:
    """Queries, keys and values as one product, cut apart as Vision Transformers do it."""
    w, b = Weights(5), Builder()
    x = b.input("x", "f32", (1, rows, heads * size))
    y = x if rows is keys else b.input("y", "f32", (1, keys, heads * size))

    def part(source: Any, count: Any) -> list[Any]:
        made = b.dense(source, w(3 * heads * size, heads * size), w(3 * heads * size))
        cut = b.transpose(b.reshape(made, shape=(1, count, 3, heads, size)), axes=(2, 0, 3, 1, 4))
        parts = (b.slice(cut, starts=(k,), ends=(k + 1,), axes=(0,)) for k in range(3))
        return [b.reshape(p, shape=(1, heads, count, size)) for p in parts]

    q, k, v = part(x, rows) if rows is keys else (part(x, rows)[0], *part(y, keys)[1:])
    scores = b.mul(b.matmul(q, b.transpose(k, axes=(0, 1, 3, 2))), np.float32(size**-0.5))
    seen = b.transpose(b.matmul(b.softmax(scores), v), axes=(0, 2, 1, 3))
    b.output(b.dense(b.reshape(seen, shape=(1, rows, heads * size)), w(8, heads * size), w(8)))
    return b.build()


def kernels(graph: Graph, precision: str = "float16", target: str = "simt") -> list[list[str]]:
    """The operators of each kernel that computes a softmax."""
    with PassContext(precision=precision, instruments=[PassVerifier()]):
        made = run_passes(graph, graph_passes(Target.of(target)))
    found: list[list[str]] = []
    for binding in made.main.body:
        expr = binding.expr
        calls = expr.graph.body if isinstance(expr, Fused) else [binding]
        names = [c.expr.op.name for c in calls if isinstance(c.expr, Call)]
        found += [names] if "softmax" in names else []
    return found


def is_whole(names: list[str]) -> bool:
    return sum(n in PRODUCTS for n in names) == 2


def test_operands_that_came_narrow() -> None:
    """Shares are rounded to what they are multiplied with."""
    b = Builder()
    q, k, v = (b.input(name, "f16", (1, 2, 24, 16)) for name in "qkv")
    b.output(b.attention(q, k, v))
    with PassContext(precision="float16"):
        made = run_passes(b.build(), graph_passes(Target.of("simt")))
        model = tw.compile(b.build(), target="simt")
    (found,) = [c.expr for c in made.main.body if isinstance(c.expr, Call)]
    assert found.attrs["narrow_shares"]
    random = np.random.default_rng(0)
    given = [random.standard_normal((1, 2, 24, 16)).astype("float16") for _ in range(3)]
    wide = [x.astype("float64") for x in given]
    scores = wide[0] @ np.swapaxes(wide[1], 2, 3) / 4
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    want = powers / powers.sum(axis=-1, keepdims=True) @ wide[2]
    (answer,) = model.run(dict(zip("qkv", given, strict=True)))
    np.testing.assert_allclose(np.asarray(answer, "float64"), want, rtol=ERROR, atol=ERROR)


def test_both_products_are_in_the_kernel() -> None:
    graph, _ = transformer(hidden=96, heads=3)
    assert [is_whole(names) for names in kernels(graph)] == [True, True]


def windows(images: int, count: int) -> tuple[Graph, list[Array]]:
    """Windows of images, each of which has a mask of its own for all images, as Swin has them."""
    heads, rows, size = 2, 20, 16
    wide, w, b = images * count, Weights(5), Builder()
    x, random = b.input("x", "f32", (wide, rows, heads * size)), np.random.default_rng(1)
    made = b.reshape(
        b.dense(x, w(3 * heads * size, heads * size)), shape=(wide, rows, 3, heads, size)
    )
    cut = b.transpose(made, axes=(2, 0, 3, 1, 4))
    parts = (b.slice(cut, starts=(k,), ends=(k + 1,), axes=(0,)) for k in range(3))
    q, k, v = (b.reshape(p, shape=(wide, heads, rows, size)) for p in parts)
    scores = b.mul(b.matmul(q, b.transpose(k, axes=(0, 1, 3, 2))), np.float32(size**-0.5))
    scores = b.add(scores, random.normal(size=(1, heads, rows, rows)).astype("f4"))
    mask = np.where(random.random((1, count, 1, rows, rows)) < 0.3, -100, 0).astype("f4")
    apart = b.add(b.reshape(scores, shape=(images, count, heads, rows, rows)), mask)
    scores = b.reshape(apart, shape=(wide, heads, rows, rows))
    seen = b.transpose(b.matmul(b.softmax(scores), v), axes=(0, 2, 1, 3))
    b.output(b.dense(b.reshape(seen, shape=(wide, rows, heads * size)), w(8, heads * size)))
    return b.build(), [w.image(wide, rows, heads * size)]


def test_windows_with_masks_of_their_own() -> None:
    graph, inputs = windows(2, 4)
    assert [is_whole(names) for names in kernels(graph)] == [True]
    (wanted,), (found,) = (
        answers(graph, inputs, *how) for how in (("llvm", "float32"), ("simt", "float16"))
    )
    np.testing.assert_allclose(found, wanted, rtol=ERROR, atol=ERROR)


def test_many_rows_go_through_any_number_of_keys() -> None:
    few, many = (
        kernels(attention(rows, 6000, 16, heads=16), target="cuda -arch=sm_90a")
        for rows in (20, 600)
    )
    assert [is_whole(few[0]), is_whole(many[0])] == [False, True]


def test_operands_are_moved_as_they_are_stored() -> None:
    (names,) = kernels(attention(20, 20))
    assert is_whole(names) and "slice" in names
    assert "cast" not in names[: names.index("softmax")], "copies stay narrow"
    assert names.count("narrowed") == 2, "shares, and the result"


@pytest.mark.parametrize(
    ("rows", "keys", "size", "precision", "target"),
    [
        (20, 20, 16, "float32", "simt"),
        (4, 20, 16, "float16", "simt"),
        (20, 20, 8, "float16", "simt"),
        (20, 6000, 16, "float16", "simt"),
        (20, 20, 16, "float16", "cuda -arch=sm_75"),
    ],
)
def test_what_stays_in_parts(rows: int, keys: int, size: int, precision: str, target: str) -> None:
    """Wide products, few rows, small heads, more scores than shared memory holds, old GPUs."""
    assert not any(map(is_whole, kernels(attention(rows, keys, size), precision, target)))


def test_unknown_sizes_stay_in_parts() -> None:
    b = Builder()
    q, k = b.input("q", "f32", (2, "n", 16)), b.input("k", "f32", (2, "n", 16))
    scores = b.softmax(b.matmul(q, b.transpose(k, axes=(0, 2, 1))))
    b.output(b.matmul(scores, k))
    assert not any(map(is_whole, kernels(b.build())))


def answers(graph: Graph, inputs: list[Array], target: str, precision: str) -> list[Array]:
    with PassContext(instruments=[PassVerifier()]):
        model = tw.compile(graph, target, precision=precision)
    return [np.asarray(a) for a in model.run(inputs)]


def test_a_small_transformer() -> None:
    """Two layers, three heads; of one text a part is masked, of the other one everything."""
    graph, inputs = transformer(hidden=48, heads=3)
    (wanted,), (found,) = (
        answers(graph, inputs, *how) for how in (("llvm", "float32"), ("simt", "float16"))
    )
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, wanted, rtol=ERROR, atol=ERROR)


def test_other_rows_than_keys() -> None:
    graph, w = attention(18, 37), Weights(6)
    inputs = [w.image(1, 18, 32), w.image(1, 37, 32)]
    (wanted,), (found,) = (
        answers(graph, inputs, *how) for how in (("llvm", "float32"), ("simt", "float16"))
    )
    np.testing.assert_allclose(found, wanted, rtol=ERROR, atol=ERROR)


def operator(mask: str, shared: int, causal: bool) -> tuple[Graph, list[Array]]:
    """The operator of that name: four heads, of which some share keys and values."""
    w, b = Weights(7), Builder()
    x, y = b.input("x", "f32", (1, 17, 64)), b.input("y", "f32", (1, 25, 64))

    def part(source: Any, count: int, heads: int) -> Any:
        made = b.reshape(b.dense(source, w(heads * 16, 64)), shape=(1, count, heads, 16))
        return b.transpose(made, axes=(0, 2, 1, 3))

    operands = [part(x, 17, 4), part(y, 25, shared), part(y, 25, shared)]
    given = [w.image(1, 17, 64), w.image(1, 25, 64)]
    if mask:
        operands.append(b.input("mask", mask, (1, 1, 17, 25)))
        seen = np.random.default_rng(1).random((1, 1, 17, 25)) < 0.5
        seen[..., 3, :] = False
        given.append(seen if mask == "bool" else np.where(seen, 0, -np.inf).astype("f4"))
    made = b.transpose(b.attention(*operands, causal=causal), axes=(0, 2, 1, 3))
    b.output(b.dense(b.reshape(made, shape=(1, 17, 64)), w(8, 64)))
    return b.build(), given


@pytest.mark.parametrize(("mask", "shared", "causal"), [("", 4, True), ("bool", 2, False)])
def test_the_operator(mask: str, shared: int, causal: bool) -> None:
    """Heads share keys; a query that sees nothing gives 0."""
    graph, inputs = operator(mask, shared, causal)
    (wanted,), (found,) = (
        answers(graph, inputs, *how) for how in (("llvm", "float32"), ("simt", "float16"))
    )
    np.testing.assert_allclose(found, wanted, rtol=ERROR, atol=ERROR)


def test_the_operator_is_one_launch() -> None:
    graph, _ = operator("f32", 2, causal=True)
    with PassContext(precision="float16"):
        made = run_passes(graph, graph_passes(Target.of("simt")))
    table = KernelTable()
    for binding in kernel_bindings(made.main):
        table(binding)
    # Long names are cut.
    (function,) = [f for name, f in table.functions.items() if "attent" in name]
    s = RULES_BY_ADDRESS.schedule(function, Target.of("cuda -arch=sm_90a"))
    assert len(launches_of(s.function)) == 1 and "transpose" in function.name
