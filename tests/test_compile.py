"""Graphs from definition to answer: compiled networks against the evaluator."""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Module, evaluate

Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weights(*shape: int) -> Array:
    return random(*shape, seed=sum(shape)) / np.float32(np.sqrt(np.prod(shape[1:])))


def check(
    module: Module, *runs: Sequence[Any], opt_level: int | None = None, rtol: float = 1e-4
) -> tw.Model:
    """Compile, run on each list of inputs twice, and compare with the evaluator."""
    model = tw.compile(module, opt_level=opt_level)
    assert isinstance(model, tw.Model)
    for inputs in runs:
        expected = evaluate(module, list(inputs))
        model.run(list(inputs))
        for got, want in zip(model.run(list(inputs)), expected, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-5)
    return model


# ---- networks -----------------------------------------------------------------------------------


def mlp(batch: Any) -> Module:
    b = Builder()
    x = b.input("x", "f32", (batch, 24))
    for k, (inner, outer) in enumerate([(24, 40), (40, 10)]):
        x = b.matmul(x, weights(inner, outer)) + weights(outer)
        x = b.relu(x) if k == 0 else b.softmax(x)
    b.output(x)
    return b.build()


def convnet(batch: Any) -> Module:
    """Convolutions with bias, a residual block, one that shrinks, pooling, a classifier."""
    b = Builder()
    x = b.input("x", "f32", (batch, 3, 12, 12))

    def conv(x: Any, cin: int, cout: int, size: int, stride: int = 1) -> Any:
        y = b.conv(x, weights(cout, cin, size, size), strides=[stride] * 2, pads=[size // 2] * 4)
        return y + weights(cout, 1, 1)

    y = b.relu(conv(x, 3, 8, 3))
    y = b.relu(conv(b.relu(conv(y, 8, 8, 3)), 8, 8, 3) + y)
    y = b.relu(conv(b.relu(conv(y, 8, 16, 3, 2)), 16, 16, 3) + conv(y, 8, 16, 1, 2))
    b.output(b.matmul(b.mean(y, axes=[2, 3]), weights(16, 5)))
    return b.build()


def transformer(length: Any) -> Module:
    """Attention with heads, a residual, layer normalisation written out, a gelu network."""
    d, heads = 16, 2
    b = Builder()
    x = b.input("x", "f32", (2, length, d))

    def split(v: Any) -> Any:
        parts = b.reshape(v, shape=[2, -1, heads, d // heads])
        return b.transpose(parts, axes=[0, 2, 1, 3])

    q, k, v = (split(b.matmul(x, weights(d, d + n - n)) + float(n)) for n in range(3))
    scores = b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2])) * float(np.sqrt(heads / d))
    mixed = b.transpose(b.matmul(b.softmax(scores), v), axes=[0, 2, 1, 3])
    y = x + b.matmul(b.reshape(mixed, shape=[2, -1, d]), weights(d, d))
    centred = y - b.mean(y, axes=[-1], keepdims=True)
    variance = b.mean(centred * centred, axes=[-1], keepdims=True)
    y = centred / b.sqrt(variance + 1e-5) * weights(d) + weights(d)
    b.output(y + b.matmul(b.gelu(b.matmul(y, weights(d, 4 * d))), weights(4 * d, d)))
    return b.build()


@pytest.mark.parametrize("batch", [3, "n"])
def test_perceptron(batch: Any) -> None:
    runs = [[random(3, 24)]] if batch == 3 else [[random(n, 24)] for n in (1, 5, 16, 0)]
    model = check(mlp(batch), *runs)
    # Each product takes in what follows it, up to the softmax.
    assert len(model.kernels) == 3


@pytest.mark.parametrize("batch", [2, "n"])
def test_convolutions_with_residuals(batch: Any) -> None:
    runs = [[random(n, 3, 12, 12)] for n in ((2,) if batch == 2 else (1, 3))]
    model = check(convnet(batch), *runs)
    names = [k for k in model.kernels if k.startswith("conv")]
    assert sum("_add_relu" in k for k in names) == 2, "residuals are epilogues"
    assert len(names) == 6


@pytest.mark.parametrize("length", [7, "s"])
def test_attention(length: Any) -> None:
    runs = [[random(2, n, 16)] for n in ((7,) if length == 7 else (1, 9))]
    model = check(transformer(length), *runs)
    assert any(k.startswith("matmul_gelu") for k in model.kernels)


@pytest.mark.parametrize("opt_level", [0, 1, 3])
def test_levels_agree(opt_level: int) -> None:
    model = check(mlp("n"), [random(4, 24)], opt_level=opt_level)
    assert (len(model.kernels) > 3) == (opt_level == 0)


def test_fused_graph_evaluates_and_parses() -> None:
    from tilewright.graph import module_constants, parse_module, verify

    module = mlp(3)
    model = tw.compile(module)
    assert isinstance(model, tw.Model)
    fused = model.graph
    verify(fused)
    x = random(3, 24)
    np.testing.assert_allclose(evaluate(fused, [x])[0], evaluate(module, [x])[0], rtol=1e-5)
    again = parse_module(str(fused), module_constants(fused))
    assert str(again) == str(fused)


# ---- fusion -------------------------------------------------------------------------------------


def kernels_of(define: Callable[[Builder, Any], Sequence[Any]], *runs: Sequence[Any]) -> list[str]:
    b = Builder()
    x = b.input("x", "f32", ("n", 8))
    b.output(*define(b, x))
    model = check(b.build(), *(runs or [[random(5, 8)]]))
    return sorted(k.rpartition("_")[0] for k in model.kernels)


def test_a_map_that_is_used_twice_stays_in_its_group() -> None:
    def silu(b: Builder, x: Any) -> list[Any]:
        y = b.matmul(x, weights(8, 8))
        return [y * b.sigmoid(y)]

    assert kernels_of(silu) == ["matmul_sigmoid_mul"]


def test_a_group_waits_for_an_operand() -> None:
    def residual(b: Builder, x: Any) -> list[Any]:
        a = b.matmul(x, weights(8, 8))
        c = b.softmax(x)
        return [b.relu(a + c)]

    assert kernels_of(residual) == ["matmul_add_relu", "softmax"]


def test_groups_never_depend_on_each_other_in_a_circle() -> None:
    def circle(b: Builder, x: Any) -> list[Any]:
        a = b.exp(x)
        total = b.sum(a, axes=[1], keepdims=True)
        return [a / total, b.neg(a)]

    check_names = kernels_of(circle)
    assert "sum" in " ".join(check_names)


def test_results_used_outside_a_group_are_kept() -> None:
    def define(b: Builder, x: Any) -> list[Any]:
        a = b.exp(x)
        c = a + 1.0
        return [a, c, c * a]

    kernels_of(define)


def test_transposing_copies_stand_alone() -> None:
    def define(b: Builder, x: Any) -> list[Any]:
        return [b.relu(b.transpose(b.exp(x)))]

    assert kernels_of(define) == ["exp", "relu", "transpose"]


def test_equal_groups_share_a_kernel() -> None:
    b = Builder()
    x = b.input("x", "f32", (4, 8))
    for k in range(5):
        x = b.tanh(b.matmul(x, weights(8, 8) * np.float32(k)) + random(8, seed=k))
    b.output(x)
    assert len(check(b.build(), [random(4, 8)]).kernels) == 1


def test_groups_are_bounded() -> None:
    b = Builder()
    x = y = b.input("x", "f32", (16,))
    for k in range(100):
        y = b.abs(y) + x if k % 2 else b.sqrt(b.abs(y))
    b.output(y)
    with tw.PassContext(options={"max_fused_calls": 10}):
        fused = tw.build(b.build()).graph
    sizes = [len(g.expr.graphs[0].body) for g in fused.main.body]
    assert max(sizes) <= 10


# ---- what goes through without a kernel ---------------------------------------------------------


def test_inputs_constants_and_views_as_outputs() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 4))
    e = b.exp(x)
    b.output(x, x, b.reshape(x, shape=[-1]), b.constant(np.arange(3)), e, b.flatten(e), e)
    check(b.build(), [random(3, 4)], [random(0, 4)])


def test_a_model_without_inputs() -> None:
    b = Builder()
    b.output(b.constant(np.arange(4.0, dtype=np.float32)) + 1.0)
    assert tw.compile(b.build()).run([])[0].tolist() == [1, 2, 3, 4]


def test_shape_arithmetic_leaves_the_data_path() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 4))
    size = b.gather(b.shape_of(x), np.array(0)) * b.constant(np.array(2))
    b.output(size, b.relu(x))
    model = check(b.build(), [random(3, 4)])
    assert [k.rpartition("_")[0] for k in model.kernels] == ["relu"]


def test_sizes_that_are_read_from_data() -> None:
    b = Builder()
    x, k = b.input("x", "f32", ("n",)), b.input("k", "i64", (1,))
    (size,) = b.read(k)
    z = b.exp(b.slice(x, starts=[0], ends=[size], axes=[0])) + 1.0
    b.output(z * z, b.sum(z), b.shape_of(z))
    runs = [[random(30), np.array([n])] for n in (7, 0, 50)]
    check(b.build(), *runs)


# ---- control flow -------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [True, False])
def test_branches(taken: bool) -> None:
    b = Builder()
    x, c = b.input("x", "f32", ("n", 4)), b.input("c", "bool")
    y = b.branch(c, lambda: b.relu(x) + 1.0, lambda: x)
    z = b.branch(c, lambda: x, lambda: b.slice(y, starts=[0], ends=[1], axes=[0]))
    b.output(y, b.branch(c, lambda: b.exp(y), lambda: b.neg(b.tanh(x))), b.exp(z))
    check(b.build(), [random(3, 4), np.array(taken)])


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_with_state_and_rows(trips: int) -> None:
    b = Builder()
    x, k = b.input("x", "f32", ("n", 4)), b.input("k", "i64")
    b.output(
        *b.loop(k, [x, x], lambda i, s, u: ([b.tanh(s) + x, u], [s * 2.0, b.cast(i, dtype="f32")]))
    )
    check(b.build(), [random(3, 4), np.array(trips)])


def test_a_loop_until_a_condition_fails() -> None:
    b = Builder()
    x = b.input("x", "f32")
    out = b.loop(None, [x], lambda i, s: (b.less(s, b.constant(100.0)), [s * 2.0], [s]))
    b.output(*out)
    check(b.build(), [np.array(1, np.float32)], [np.array(500, np.float32)])


def test_a_loop_whose_state_grows() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 2))
    grown = b.loop(4, [x], lambda i, s: [b.concat(s, x, axis=0)])
    b.output(grown, b.sum(grown, axes=[0]))
    check(b.build(), [random(3, 2)], [random(1, 2)])


def test_loops_and_branches_inside_loops() -> None:
    b = Builder()
    x = b.input("x", "f32", (4,))

    def inner(j: Any, t: Any) -> list[Any]:
        even = b.equal(b.mod(j, b.constant(np.array(2))), b.constant(np.array(0)))
        return [b.branch(even, lambda: t + x, lambda: t * 0.5)]

    b.output(b.loop(3, [x], lambda i, s: [b.loop(i, [s], inner)]))
    check(b.build(), [random(4)])


def test_many_trips_run_natively() -> None:
    b = Builder()
    x = b.input("x", "f32", (4,))
    b.output(b.loop(10_000, [x], lambda i, s: [s * 0.5 + x]))
    model = check(b.build(), [random(4)])
    assert model.time([random(4)], repeat=3, min_repeat_ms=1).min < 0.02


# ---- running ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> tw.Model:
    made = tw.compile(mlp("n"))
    assert isinstance(made, tw.Model)
    return made


def test_what_a_model_takes_and_gives(model: tw.Model) -> None:
    assert [str(s) for s in model.inputs] == ["x: float32[n, 24]"]
    assert [str(s) for s in model.outputs] == ["softmax: float32[n, 10]"]
    assert model.inputs[0].shape == ("n", 24)


def test_ways_to_run(model: tw.Model) -> None:
    x = random(3, 24)
    y = model(x)
    np.testing.assert_array_equal(model.run([x])[0], y)
    np.testing.assert_array_equal(model.run({"x": x})[0], y)
    model.set_input("x", x)
    model.run()
    np.testing.assert_array_equal(model.get_output(0), y)
    np.testing.assert_array_equal(model.get_output("softmax"), y)
    own = np.empty((3, 10), np.float32)
    assert model.run([x], out=[own])[0] is own
    np.testing.assert_array_equal(own, y)
    np.testing.assert_array_equal(model(np.asfortranarray(x)), y)
    np.testing.assert_array_equal(model(x.tolist()), y)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input x is missing: the model takes x: float32\[n, 24\]"),
        ({"y": random(3, 24)}, r"the model has no input y: the model takes x"),
        ([], r"0 inputs were given: the model takes x"),
        (random(3, 24), r"cannot run on ndarray"),
        ([random(3, 23)], r"input x must be float32\[n, 24\]: got the shape \[3, 23\]"),
        ([random(3)], r"input x must be float32\[n, 24\]: got 1 dimensions: \[3\]"),
        ([random(3, 24).astype("f8")], r"input x must be float32\[n, 24\]: got float64\[3, 24\]"),
        (["text"], r"input x must be float32\[n, 24\]: got"),
    ],
)
def test_wrong_inputs_are_named(model: tw.Model, inputs: Any, message: str) -> None:
    with pytest.raises(tw.UserError, match=message):
        model.run(inputs)


def test_a_dimension_with_two_values() -> None:
    b = Builder()
    x, y = b.input("x", "f32", ("n", 2)), b.input("y", "f32", ("n", 2))
    b.output(x + y)
    with pytest.raises(tw.UserError, match=r"input y must be float32\[n, 2\]: .* with n = 3"):
        tw.compile(b.build()).run([random(3, 2), random(4, 2)])


def test_wrong_outputs_are_named(model: tw.Model) -> None:
    with pytest.raises(tw.UserError, match=r"output softmax must be an array float32\[3, 10\]"):
        model.run([random(3, 24)], out=[np.empty((3, 11), np.float32)])
    with pytest.raises(tw.UserError, match="has no output 7"):
        model.get_output(7)


def test_dimensions_that_do_not_meet_stop_the_program() -> None:
    b = Builder()
    x, y = b.input("x", "f32", ("n",)), b.input("y", "f32", ("m",))
    b.output(x + y)
    model = check(b.build(), [random(3), random(3)], [random(3), random(1)])
    with pytest.raises(tw.UserError, match="main stopped: add: dimension 0 is"):
        model.run([random(3), random(4)])
    # What failed leaves nothing behind.
    np.testing.assert_array_equal(model(random(2), random(2)), 2 * random(2))


def test_a_kernel_that_fails_stops_the_program() -> None:
    b = Builder()
    x, i = b.input("x", "f32", (5, 2)), b.input("i", "i64", ("k",))
    y = b.softmax(x)
    b.origin = "the second layer"
    b.output(b.gather(y, i), b.exp(b.gather(y * 2.0, i, axis=1)))
    model = check(b.build(), [random(5, 2), np.array([1, 0])])
    with pytest.raises(tw.UserError, match=r"main stopped at the second layer: index 7 .*5"):
        model.run([random(5, 2), np.array([0, 7])])
    with pytest.raises(tw.UserError, match=r"main stopped at the second layer: index 3 .*2"):
        model.run([random(5, 2), np.array([3])])


def test_threads_run_one_model_at_once(model: tw.Model) -> None:
    inputs = [random(1 + k, 24, seed=k) for k in range(4)]
    expected = [model(x) for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not np.array_equal(model(inputs[k]), expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_compiling_and_running_keeps_memory_flat() -> None:
    module = mlp("n")

    def once() -> None:
        tw.compile(module)(random(64, 24))

    for _ in range(5):
        once()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        once()
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(tw.UserError, match="cannot build int"):
        tw.build(3)  # type: ignore[arg-type]


def test_operators_in_one_kernel_are_rounded_as_by_themselves() -> None:
    """What follows may round to integers: no bit differs between one kernel and several."""
    b = Builder()
    x = b.input("x", "f32", ("n", 40))
    scale, shift = (np.linspace(0.1, 3, 40, dtype="f4") ** k for k in (1, 2))
    y = b.add(b.mul(x, scale), shift)
    z = b.sub(b.mul(y, y), b.mul(x, shift))
    b.output(z, b.mean(b.add(b.mul(z, scale), y), axes=[1]))
    module = b.build()
    data = np.random.default_rng(3).standard_normal((7, 40)).astype("f4")
    apart, fused = (tw.compile(module, opt_level=k).run([data]) for k in (0, 3))
    np.testing.assert_array_equal(apart[0], fused[0])
    (want, _) = evaluate(module, [data])
    np.testing.assert_array_equal(fused[0], want)
