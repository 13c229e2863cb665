"""A model on a device gives what it gives here, bit for bit, and fails as it fails here."""

from __future__ import annotations

import gc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.emulated.emulator import other_architecture
from tests.frontends.onnx.models import info, make, node
from tests.network_cases import CASES, Case
from tests.rpc.hosts import Host, artifacts_below, classifier, data, started
from tilewright.graph import ANY, Builder, OptionalType, SequenceType, TensorType


@pytest.fixture(scope="module")
def device(server: Host, key: Path):
    with tw.rpc.connect(server.address, key) as device:
        yield device


def _same(here: object, there: object) -> None:
    if here is None:
        assert there is None
        return
    if isinstance(here, list):
        assert isinstance(there, list) and len(here) == len(there)
        for a, b in zip(here, there, strict=True):
            _same(a, b)
        return
    assert isinstance(here, np.ndarray) and isinstance(there, np.ndarray)
    assert here.dtype == there.dtype and here.shape == there.shape
    assert here.tobytes() == there.tobytes()


def test_a_device_says_what_it_is(device: tw.rpc.Device, server: Host) -> None:
    assert str(tw.Target.of(device.target)) == device.target
    assert device.address == server.address and device.name in repr(device)
    device.ping()


@pytest.mark.parametrize("case", CASES[:6], ids=str)
def test_networks_give_the_same(case: Case, device: tw.rpc.Device) -> None:
    here = tw.compile(case.graph(), device.target)
    _same(here.run(case.inputs), device.load(here).run(case.inputs))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64"])
def test_elements_of_every_kind_travel(dtype: str, device: tw.rpc.Device) -> None:
    b = Builder()
    b.output(b.concat(b.input("x", dtype, ("n", 3)), b.input("y", dtype, ("m", 3)), axis=0))
    here = tw.compile(b.build())
    there = device.load(here)
    element = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for n, m in [(2, 5), (0, 1), (0, 0)]:
        x, y = (np.arange(k * 3).reshape(k, 3).astype(element) for k in (n, m))
        _same(here.run([x, y]), there.run({"y": y, "x": x}))


def test_inputs_come_in_many_forms(device: tw.rpc.Device, model: tw.Model) -> None:
    there, x = device.load(model), data(4)
    expected = model(x)
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    _same(expected, there(strided))
    _same(expected, there(np.asfortranarray(x)))
    _same(model.run([x.tolist()])[0], there.run([x.tolist()])[0])
    special = np.array([[np.nan, np.inf, -np.inf, -0.0] * 4], np.float32)
    _same(model(special), there(special))
    there.set_input("x", x)
    there.run()
    _same(expected, there.get_output())


def test_arrays_of_the_caller_are_written_to(device: tw.rpc.Device, model: tw.Model) -> None:
    there, out = device.load(model), np.empty((3, 10), np.float32)
    (result,) = there.run([data()], out=[out])
    assert result is out
    _same(model(data()), out)
    with pytest.raises(tw.UserError, match="must be an array float32"):
        there.run([data()], out=[np.empty((2, 10), np.float32)])


def test_lists_and_nothing_travel(device: tw.rpc.Device) -> None:
    b = Builder()
    items = b.input("items", SequenceType(TensorType("f32", [ANY, 2])))
    maybe = b.input("maybe", OptionalType(SequenceType(TensorType("f32", [ANY]))))
    b.output(b.sequence_insert(items, b.sequence_at(items, np.int64(0))), maybe)
    here = tw.compile(b.build())
    there = device.load(here)
    rows = [np.ones((k, 2), np.float32) * k for k in (1, 0, 3)]
    for optional in (None, [], [np.arange(3, dtype=np.float32)]):
        _same(here.run([rows, optional]), there.run([rows, optional]))


def test_models_that_are_not_native_as_a_whole(device: tw.rpc.Device, tmp_path: Path) -> None:
    axes = [info("x", shape=["n", 4]), info("axes", "int64", [1])]
    here = tw.compile(make([node("ReduceSum", ["x", "axes"], keepdims=0)], axes, ["y"]))
    given = [np.ones((3, 4), np.float32), np.array([1])]
    expected = here.run(given)
    here.save(tmp_path / "m.twm")
    for there in (device.load(here), device.load(tmp_path / "m.twm")):
        _same(expected, there.run(given))
        with pytest.raises(tw.UserError, match="there is no program for axes"):
            there.run([given[0], np.array([-1])])
        with pytest.raises(tw.UserError, match="cannot be"):
            there.profile(given)


def test_texts_travel(device: tw.rpc.Device) -> None:
    takes = [info("s", "string", [2]), info("t", "string", [2])]
    with pytest.warns(UserWarning, match="run on the host"):
        here = tw.compile(make([node("StringConcat", ["s", "t"])], takes, ["y"], opset=20))
    words = [np.array(["a", "ü"], object), np.array(["b", ""], object)]
    (found,) = device.load(here).run(words)
    assert found.tolist() == here.run(words)[0].tolist() == ["ab", "ü"]


@pytest.mark.parametrize(
    "inputs",
    [
        [data()[:, :5]],
        [data().astype(np.float64)],
        [data(), data()],
        {"y": data()},
        {},
        [data()[0]],
        [["a"]],
    ],
    ids=["shape", "type", "many", "name", "none", "rank", "text"],
)
def test_errors_are_those_of_the_model(
    inputs: object, device: tw.rpc.Device, model: tw.Model
) -> None:
    there = device.load(model)
    with pytest.raises(tw.UserError) as here_told:
        model.run(inputs)  # type: ignore[arg-type]
    with pytest.raises(tw.UserError) as there_told:
        there.run(inputs)  # type: ignore[arg-type]
    assert str(there_told.value) == str(here_told.value)
    assert type(there_told.value) is type(here_told.value)
    _same(model(data()), there(data()))


def test_what_cannot_travel_is_refused(device: tw.rpc.Device, model: tw.Model) -> None:
    there = device.load(model)
    with pytest.raises(tw.UserError, match="cannot send object to a device"):
        there.run([object()])
    with pytest.raises(tw.UserError, match="cannot send an array of >f4"):
        there.run([data().astype(">f4")])
    with pytest.raises(tw.UserError, match="another machine"):
        there.bind([data()])


def test_times_are_those_of_the_device(device: tw.rpc.Device, model: tw.Model) -> None:
    there = device.load(model)
    timing = there.time([data()], repeat=3, min_repeat_ms=1)
    assert len(timing.samples) == 3 and timing.min > 0
    assert there.benchmark([data()], seconds=0.01).median > 0
    there.set_threads(1)
    _same(model(data()), there(data()))
    with pytest.raises(tw.UserError, match="cannot time"):
        there.benchmark([data()], seconds="long")  # type: ignore[arg-type]


def test_profiles_name_kernels_and_their_costs(device: tw.rpc.Device, model: tw.Model) -> None:
    here, there = model.profile([data()], runs=2), device.load(model).profile([data()], runs=2)
    assert {(r.name, r.calls, r.flops, r.bytes) for r in here.rows} == {
        (r.name, r.calls, r.flops, r.bytes) for r in there.rows
    }
    assert there.seconds > 0
    with pytest.raises(tw.UserError, match="at least one"):
        device.load(model).profile([data()], runs=0)


def test_artifacts_are_sent_as_they_are(
    device: tw.rpc.Device, model: tw.Model, tmp_path: Path
) -> None:
    path, told = tmp_path / "m.twm", list[tuple[int, int]]()
    other = tw.compile(classifier(), f"llvm -mtriple={other_architecture()}-linux-gnu")
    tw.save([other, model], path)
    there = device.load(path, progress=lambda done, total: told.append((done, total)))
    assert told and told[-1] == (path.stat().st_size,) * 2
    _same(model(data()), there(data()))
    assert [str(s) for s in there.inputs] == ["x: float32[n, 16]"]
    assert there.kernels == model.kernels and there.texts
    there.save(tmp_path / "again.twm")
    _same(model(data()), tw.load(tmp_path / "again.twm")(data()))


def test_foreign_and_damaged_artifacts_are_refused(
    device: tw.rpc.Device, model: tw.Model, tmp_path: Path
) -> None:
    with pytest.raises(tw.UserError, match=f"it is for {other_architecture()}"):
        device.load(tw.compile(classifier(), f"llvm -mtriple={other_architecture()}-linux-gnu"))
    model.save(tmp_path / "m.twm")
    data_ = bytearray((tmp_path / "m.twm").read_bytes())
    data_[len(data_) // 2] ^= 1
    (tmp_path / "m.twm").write_bytes(data_)
    with pytest.raises(tw.UserError):
        device.load(tmp_path / "m.twm")
    (tmp_path / "m.twm").write_bytes(b"")
    with pytest.raises(tw.UserError, match="it is empty"):
        device.load(tmp_path / "m.twm")
    device.ping()


def test_models_that_nobody_needs_are_freed(
    device: tw.rpc.Device, server: Host, model: tw.Model
) -> None:
    gc.collect()
    device.ping()
    before = len(artifacts_below(server.folder))
    kept, dropped = device.load(model), [device.load(model) for _ in range(5)]
    assert len(artifacts_below(server.folder)) == before + 6
    dropped.clear()
    gc.collect()
    device.ping()
    assert len(artifacts_below(server.folder)) == before + 1
    _same(model(data()), kept(data()))


def test_only_signed_artifacts_where_asked_for(key: Path, model: tw.Model, tmp_path: Path) -> None:
    from tilewright.runtime import make_key_pair

    private, public = make_key_pair()
    (tmp_path / "pub.pem").write_bytes(public)
    model.save(tmp_path / "signed.twm", key=private)
    with (
        started("server", key, tmp_path / "f", "--trusted", str(tmp_path / "pub.pem")) as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        there = device.load(tmp_path / "signed.twm")
        _same(model(data()), there(data()))
        with pytest.raises(tw.UserError, match="code that nobody has signed"):
            there.profile([data()])
        with pytest.raises(tw.UserError, match="sign"):
            device.load(model)


def test_a_server_needs_no_compiler(key: Path, model: tw.Model, tmp_path: Path) -> None:
    """Neither LLVM nor the rooms of the compiler are there to be imported."""
    (tmp_path / "llvmlite.py").write_text("raise ImportError('there is no LLVM here')")
    for room in ("codegen", "schedule", "lower", "tensor", "frontends"):
        text = f"raise ImportError('there is no {room} here')\n"
        (tmp_path / "sitecustomize.py").open("a").write(
            f"import sys; sys.modules['tilewright.{room}'] = None  # {text}"
        )
    env = {"PYTHONPATH": f"{tmp_path}:{Path(tw.__file__).parents[1]}"}
    with (
        started("server", key, tmp_path / "f", "--target", "", **env) as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        assert device.target == str(tw.Target.of("llvm"))
        there = device.load(model)
        _same(model(data()), there(data()))
        assert there.profile([data()]).rows and there.time([data()], repeat=1).min > 0
