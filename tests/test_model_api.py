"""What compiled models offer beside `run`: bound arrays, other libraries' tensors, figures."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.networks import mlp, positive, random
from tilewright.graph import Builder
from tilewright.ir import parse_function
from tilewright.kernels.cost import cost_of
from tilewright.support.errors import UserError
from tilewright.support.timing import Latencies

X = random(5, 24, seed=7)


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(mlp())


# ---- bound arrays -------------------------------------------------------------------------------


def test_a_bound_model_reads_and_writes_the_arrays_it_was_given(model: Any) -> None:
    x, y = X.copy(), np.empty((5, 10), np.float32)
    bound = model.bind({"x": x}, {"softmax": y})
    for seed in (1, 2):
        x[...] = random(5, 24, seed=seed)
        first, second = bound()
        assert first is y and second is bound.outputs[1]
        np.testing.assert_array_equal(first, model.run([x])[0])
        np.testing.assert_array_equal(second, model.run([x])[1])


def test_what_cannot_be_bound(model: Any) -> None:
    with pytest.raises(UserError, match="input x cannot be bound"):
        model.bind([X[:, ::-1]])
    with pytest.raises(UserError, match="input x cannot be bound"):
        model.bind([X.tolist()])
    with pytest.raises(UserError, match="how large compress gets"):
        tw.compile(positive()).bind([random(3)])


# ---- tensors of other libraries -----------------------------------------------------------------


def test_tensors_of_torch_come_and_go_without_copies(model: Any) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X.copy()), torch.empty(5, 10)
    (first, _) = model.run([x], out=[y])
    assert first.ctypes.data == y.data_ptr()
    np.testing.assert_array_equal(y.numpy(), model.run([X])[0])
    result = torch.from_dlpack(model.run([x])[1])
    assert result.shape == (5, 40)
    bound = model.bind([x], [y])
    assert bound.inputs[0].ctypes.data == x.data_ptr()
    with pytest.raises(UserError, match="through DLPack"):
        model.run([x.clone().requires_grad_()])


def test_arrays_of_jax_come_and_go_without_copies(model: Any) -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(random(200, 24))
    assert model.bind([x]).inputs[0].ctypes.data == x.unsafe_buffer_pointer()
    y, hidden = model.run([x])
    np.testing.assert_array_equal(y, model.run([np.array(x)])[0])
    # 8,000 bytes are copied by JAX, which wants them aligned; 32,000 come aligned.
    assert jax.numpy.from_dlpack(hidden).unsafe_buffer_pointer() == hidden.ctypes.data
    np.testing.assert_array_equal(jax.numpy.from_dlpack(y), y)
    with pytest.raises(UserError, match="cannot be written to its array"):
        model.run([x], out=[jax.numpy.zeros((200, 10))])
    seen = jax.jit(lambda v: jax.pure_callback(lambda v: model.run([v])[0], y, v))(x)
    # Its threads take subnormal numbers for zeros.
    np.testing.assert_allclose(seen, y, rtol=1e-6, atol=1e-37)


def test_bfloat16_of_jax() -> None:
    jax = pytest.importorskip("jax")
    b = Builder()
    b.output(b.input("x", "bf16", ("n", 4)) * 2.0)
    model = tw.compile(b.build())
    x = jax.numpy.arange(8, dtype="bfloat16").reshape(2, 4)
    assert model.bind([x]).inputs[0].ctypes.data == x.unsafe_buffer_pointer()
    np.testing.assert_array_equal(jax.numpy.asarray(model.run([x])[0]), x * 2)


def test_large_results_are_aligned(model: Any) -> None:
    _, hidden = model.run([random(200, 24)])
    assert hidden.ctypes.data % 64 == 0 and hidden.flags.writeable


def test_bfloat16_of_torch() -> None:
    torch = pytest.importorskip("torch")
    b = Builder()
    b.output(b.input("x", "bf16", ("n", 4)) * 2.0)
    model = tw.compile(b.build())
    x, y = torch.arange(8, dtype=torch.bfloat16).reshape(2, 4), torch.empty(2, 4).bfloat16()
    (got,) = model.run([x], out=[y])
    assert got.dtype == ml_dtypes.bfloat16
    assert torch.equal(y, x * 2)
    (transposed,) = model.run([torch.arange(8, dtype=torch.bfloat16).reshape(4, 2).T])
    np.testing.assert_array_equal(transposed, np.arange(8).reshape(4, 2).T * 2)


# ---- threads ------------------------------------------------------------------------------------


def test_several_threads_run_one_model(model: Any) -> None:
    batches = [random(3, 24, seed=k) for k in range(16)]
    wanted = [model.run([x])[0] for x in batches]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda x: model.run([x])[0], batches))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_python_goes_on_while_the_code_runs() -> None:
    """Threads change places only where one of them gives the interpreter's lock away."""
    b = Builder()
    x = b.input("x", "f32", (768, 768))
    for _ in range(6):
        x = b.matmul(x, random(768, 768))
    b.output(x)
    model, given, order = tw.compile(b.build(), threads=1), random(768, 768), []

    def run() -> None:
        order.append("begins")
        model.run([given])
        order.append("ends")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        order.append("meanwhile")
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert order == ["begins", "meanwhile", "ends"]


# ---- figures ------------------------------------------------------------------------------------


def test_latencies(model: Any) -> None:
    found = model.benchmark([X], seconds=0.0)
    assert len(found.samples) == 10 and 0 < found.percentile(0) <= found.median
    assert "10 calls" in repr(found)
    known = Latencies((4.0, 1.0, 3.0, 2.0))
    assert (known.median, known.percentile(100), known.mean) == (2.5, 4.0, 2.5)
    assert known.per_second == 0.4


def test_profiles_name_every_call(model: Any, tmp_path: Path) -> None:
    profile = model.profile([X], runs=3)
    assert profile.runs == 3 and len(profile.events) == 3 * len(model._program.calls)
    assert {e.name for e in profile.events} == set(model.kernels)
    assert all(e.start <= e.end for e in profile.events)
    rows = profile.rows
    assert [r.calls for r in rows] == [1.0] * len(rows)
    assert sum(r.share for r in rows) == pytest.approx(1)
    products = sum(r.flops for r in rows if r.name.startswith("matmul"))
    assert 2 * 5 * 40 * (24 + 10) <= products < 3 * 5 * 40 * (24 + 10)
    profile.save_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert len(trace["traceEvents"]) == len(profile.events)
    assert {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"} == set(trace["traceEvents"][0])
    assert rows[0].name in str(profile) and "3 runs" in repr(profile)


def test_profiles_of_loaded_models(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "m.twm")
    loaded = tw.load(tmp_path / "m.twm")
    figures = [(r.name, r.calls, r.flops, r.bytes) for r in loaded.profile([X]).rows]
    assert sorted(figures) == sorted(
        (r.name, r.calls, r.flops, r.bytes) for r in model.profile([X]).rows
    )


def test_dimensions_count_in_profiles(model: Any) -> None:
    one, five = (model.profile([X[:n]]).rows for n in (1, 5))
    flops = {r.name: r.flops for r in one}
    assert all(r.flops == 5 * flops[r.name] for r in five)


def test_profiles_need_a_run(model: Any) -> None:
    with pytest.raises(UserError, match="at least one"):
        model.profile([X], runs=0)


def test_origins_are_told() -> None:
    proto = make([node("Relu", ["x"], name="act")], [info("x", shape=[4])], ["y"])
    rows = tw.compile(proto).profile([random(4)]).rows
    assert rows[0].origins == ("node act (Relu)",)


def test_costs_of_loops() -> None:
    text = """
        def f(table: f32[1000, 4], at: i64[n], y: f32[n, 4]):
            for i in range(n):
                for j in range(4):
                    y[i, j] = table[at[i], j] * 2.0 + 1.0
    """
    function = parse_function(dedent(text))
    cost = cost_of(function, [10])
    assert cost.flops == 2 * 40
    # Each index, of the table only what is looked up, and the result.
    assert cost.bytes == 10 * 8 + 40 * 4 + 40 * 4


def test_models_that_are_not_native_say_what_they_cannot() -> None:
    proto = make([node("StringConcat", ["a", "a"])], [info("a", "string", [2])], ["y"], opset=20)
    with pytest.warns(UserWarning, match="run on the host"):
        model = tw.compile(proto)
    for attempt in (model.bind, model.profile, model.set_threads):
        with pytest.raises(UserError, match="it is not one native program"):
            attempt([])  # type: ignore[arg-type]
    assert model.kernels == () and model.texts == {}


def test_more_arrays_than_outputs_are_refused() -> None:
    b = Builder()
    x = b.input("x", "f32", (3,))
    b.output(b.relu(x))
    spare = np.empty(3, np.float32)
    with pytest.raises(tw.UserError, match="2 arrays were given for 1 outputs"):
        tw.compile(b.build()).bind([spare], [spare.copy(), spare.copy()])
