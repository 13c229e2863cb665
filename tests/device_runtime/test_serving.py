"""The server in C, beside Python's client: the same protocol, without Python on the device."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.emulator import FETCHED
from tests.rpc.hosts import started, until
from tests.test_compile import random, weights
from tests.tune.test_measuring import forever, scale
from tilewright import te
from tilewright.device_runtime import build_runtime
from tilewright.graph import Builder
from tilewright.kernels.compiled import CompiledKernel, compile_function
from tilewright.kernels.pipeline import DEFAULTS
from tilewright.rpc import DeviceLostError, Link
from tilewright.rpc.wire.frames import Kind
from tilewright.rpc.wire.keys import read_key
from tilewright.rpc.wire.signatures import kernel_data
from tilewright.rpc.wire.values import Packed
from tilewright.support.elf import EXEC, read_elf
from tilewright.tensor import f32, i64
from tilewright.tune import read_records
from tilewright.tune.measuring.devices import OneDevice
from tilewright.tune.measuring.remote import RemoteMeasurer
from tilewright.tune.tasks import Task

#: The sources of mbedTLS, as `make emulators` fetches them.
MBEDTLS = FETCHED / "mbedtls"
#: Damaged calls that are sent.
HOSTILE = 200

pytestmark = [
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler"),
    pytest.mark.skipif(
        not MBEDTLS.is_dir(), reason="there is no mbedTLS: `make emulators` gets it"
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("server") / "tilewright-run"
    build_runtime(made, mbedtls=MBEDTLS, compiler=["cc"])
    return made


class Served:
    """A server that runs, and its key."""

    def __init__(self, program: Path, folder: Path, *words: str) -> None:
        self.key = folder / "key"
        if not self.key.exists():
            tw.rpc.write_key(self.key)
        command = [str(program), "serve", "--key-file", str(self.key), "--name", "dev", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]

    def connect(self) -> Any:
        return tw.rpc.connect(self.address, key=self.key)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


@pytest.fixture
def served(program: Path, tmp_path: Path) -> Iterator[Served]:
    made = Served(program, tmp_path)
    yield made
    assert made.stop() == 0


def _graph() -> Any:
    b = Builder()
    b.output(b.relu(b.dense(b.input("x", "f32", ("n", 24)), weights(10, 24), weights(10))))
    return b.build()


def test_a_model_runs_there_as_if_it_were_here(served: Served) -> None:
    graph, x = _graph(), random(5, 24)
    with served.connect() as device:
        assert device.name == "dev"
        local = tw.compile(graph, target=device.target)
        model = device.load(local, threads=2)
        np.testing.assert_array_equal(model(x), local(x))
        np.testing.assert_array_equal(model.run({"x": x})[0], local(x))
        assert model.time([x], repeat=3, min_repeat_ms=1).median > 0
        assert len(model.benchmark([x], seconds=0.01).samples) >= 10
        (kernel,) = {event.name for event in model.profile([x]).events}
        assert kernel.startswith("dense")
        model.set_threads(1)
        with pytest.raises(tw.UserError, match=r"input x: float32\[n, 24\] was given as"):
            model(random(5, 25))
        np.testing.assert_array_equal(model(x), local(x))


def test_what_it_cannot_do_is_said(served: Served) -> None:
    with served.connect() as device:
        with pytest.raises(tw.UserError, match="make trials by calls of kernels"):
            device.call("trial", {})
        device.ping()
        with pytest.raises(tw.UserError, match="it is for "):
            other = "x86-64" if tw.Target.of("llvm").arch == "aarch64" else "cortex-a72"
            device.load(tw.compile(_graph(), f"llvm -mcpu={other}"))
        device.ping()


# ---- kernels ------------------------------------------------------------------------------------


def _matmul(target: str, *, plain: bool = False, n: Any = 48) -> tw.Module:
    A, B = te.placeholder((n, 48), name="A"), te.placeholder((48, 48), name="B")
    k = te.reduce_axis(48, name="k")
    C = te.compute((n, 48), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    f = te.function([A, B], [C], name="matmul")
    return tw.build(tw.Schedule(f) if plain else f, target)


def test_kernels_are_called_and_timed_in_turn(served: Served) -> None:
    a, b = random(48, 48), random(48, 48, seed=1)
    with served.connect() as device:
        built = [_matmul(device.target, plain=plain) for plain in (False, True)]
        kernels = [device.load_kernel(module.as_code()) for module in built]
        for here, there in zip(built, kernels, strict=True):
            here(a, b, expected := np.empty((48, 48), np.float32))
            there(a, b, got := np.empty((48, 48), np.float32))
            np.testing.assert_array_equal(got, expected)
        timings = device.measure(kernels, [a, b, np.empty_like(a)], rounds=4, min_repeat_ms=1)
        assert [len(t.samples) for t in timings] == [4, 4]
        assert 0 < timings[0].min < timings[1].min
        kernels.clear()
        device.ping()
        assert not device.unused


def test_kernels_of_free_sizes(served: Served) -> None:
    with served.connect() as device:
        here = _matmul(device.target, n=te.var("n"))
        there = device.load_kernel(here.as_code())
        for n in (1, 7, 33):
            a, b = random(n, 48), random(48, 48, seed=1)
            here(a, b, expected := np.empty((n, 48), np.float32))
            there(a, b, got := np.empty((n, 48), np.float32))
            np.testing.assert_array_equal(got, expected)


@tw.script
def scaled(x=f32[64], y=f32[64], factor=f32, first=i64):
    for i in range(64):
        if i >= first:
            y[i] = x[i] * factor


def test_kernels_that_take_numbers(served: Served) -> None:
    x = random(64)
    with served.connect() as device:
        there = device.load_kernel(tw.build(scaled, device.target).as_code())
        there(x, y := np.zeros(64, np.float32), 0.1, 7)
        np.testing.assert_array_equal(y[7:], x[7:] * np.float32(0.1))
        assert not y[:7].any()


def _sent(device: Any, arguments: Any, *arrays: Any) -> Any:
    kernel = device.load_kernel(_matmul(device.target).as_code())
    packed = Packed()
    for array in arrays:
        packed.tree(array)
    return device.call("call_kernel", {"kernel": kernel.number(), "arguments": arguments}, packed)


def test_arguments_that_a_kernel_does_not_take(served: Served) -> None:
    good, short = np.ones((48, 48), np.float32), np.ones((48, 47), np.float32)
    listed = [{"array": k} for k in range(3)]
    with served.connect() as device:
        with pytest.raises(tw.UserError, match="takes 3 arguments, not 2"):
            _sent(device, listed[:2], good, good)
        with pytest.raises(tw.UserError, match="argument B is of another shape"):
            _sent(device, listed, good, short, good)
        with pytest.raises(tw.UserError, match="argument A is of another type"):
            _sent(device, listed, good.astype(np.float64), good, good)
        with pytest.raises(tw.UserError, match="argument B is not what it takes"):
            _sent(device, [listed[0], {"array": 9}, listed[2]], good, good, good)
        with pytest.raises(tw.UserError, match="argument A shares memory with another one"):
            _sent(device, [listed[0], listed[1], listed[0]], good, good)
        other = "x86_64" if tw.Target.of("llvm").arch == "aarch64" else "aarch64"
        with pytest.raises(tw.UserError, match=f"cannot run on this device: it is for {other}"):
            device.load_kernel(_matmul(f"llvm -mtriple={other}-linux-gnu").as_code())
        device.ping()


@pytest.mark.parametrize(
    "fields",
    [
        {"name": 3},
        {"params": [["A"]]},
        {"params": [["A", "float32", [48, 48], [1], 1, True]]},
        {"params": [["A", "float32", [["pow", 1, 2]], None, 1, True]]},
        {"params": [["A", "float33", [48], None, 1, True]]},
        {"params": [["A", "float32", [48], None, 0, True]]},
        {"dims": [3]},
        {"messages": "none"},
        {"target": ["llvm"]},
        {"threads": -1},
    ],
)
def test_kernels_that_make_no_sense_end_the_session(served: Served, fields: dict[str, Any]) -> None:
    with served.connect() as device:
        code = _matmul(device.target).as_code()
        packed = Packed()
        for part in (code.object_code, code.pool):
            packed.tree(np.frombuffer(part, np.uint8))
        with pytest.raises(DeviceLostError, match="damaged messages"):
            device.call("load_kernel", {**kernel_data(code), **fields}, packed)
        with pytest.raises(DeviceLostError, match="damaged messages"):
            device.call("call_kernel", {"kernel": 3, "arguments": []})
        device.ping()


#: What may stand in a field where something else should.
ODD = (
    None,
    True,
    -1,
    0,
    3,
    1 << 40,
    0.5,
    "",
    "n",
    [],
    [[]],
    [1] * 40,
    {},
    {"array": 0},
    ["mul", 2],
)


def _changed(value: Any, rng: Random) -> Any:
    """A copy of JSON data with one part of it replaced, dropped or repeated."""
    parts = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    if not parts:
        return rng.choice(ODD)
    key, part = rng.choice(parts)
    if isinstance(part, dict | list) and rng.random() < 0.7:
        made = _changed(part, rng)
    else:
        made = rng.choice(ODD)
    if isinstance(value, dict):
        return {**value, key: made}
    rest = [p for k, p in parts if k != key or rng.random() < 0.2]
    return [*rest[:key], made, *rest[key:]]


def test_hostile_calls_of_kernels(served: Served) -> None:
    """Fields that are wrong end in a refusal or in the end of the session, never in a crash."""
    rng, told = Random(0), Counter[str]()
    one = np.ones((48, 48), np.float32)
    with served.connect() as device:
        code = _matmul(device.target, n=te.var("n")).as_code()
        kernel = device.load_kernel(code)
        listed = [{"array": k} for k in range(3)]
        for _ in range(HOSTILE):
            measuring = {"rounds": 1, "min_repeat_ms": 0, "warmup": 0}
            fields, arrays = rng.choice(
                [
                    ({"call": "load_kernel", **kernel_data(code)}, [code.object_code, code.pool]),
                    ({"call": "call_kernel", "kernel": 0, "arguments": listed}, [one] * 3),
                    (
                        {"call": "measure", "kernels": [0], "each": [[listed]], **measuring},
                        [one] * 3,
                    ),
                ]
            )
            number = kernel.number()
            fields = {**fields, **{k: [number] for k in ("kernels",) if k in fields}}
            fields = {**fields, **{k: number for k in ("kernel",) if k in fields}}
            call, packed = fields.pop("call"), Packed()
            for array in arrays:
                packed.tree(np.frombuffer(array, np.uint8) if isinstance(array, bytes) else array)
            try:
                device.call(call, _changed(fields, rng), packed)
                told["answered"] += 1
            except DeviceLostError as error:
                told[error.kind] += 1
            except tw.UserError:
                told["refused"] += 1
    assert set(told) == {"answered", "damaged", "refused"}, told


def test_a_model_is_tuned_there(served: Served, tmp_path: Path) -> None:
    b, path = Builder(), tmp_path / "r.jsonl"
    b.output(b.relu(b.matmul(b.input("x", "f32", (24, 48)), weights(48, 80))))
    graph = b.build()
    with served.connect() as device:
        summary = tw.tune(graph, on=device, records=path, trials=3, budget=100, tuner="ga")
        records = [r for r in read_records(path) if r.kind == "trial"]
        assert summary.trials == len(records) == 3 and not summary.failures
        assert {r.target for r in records} == {str(tw.Target.of(device.target))}
        assert all(r.ratio and r.seconds and r.reference for r in records)


def faulting(candidate: bytes) -> bytes:
    """A kernel whose machine code is none."""
    kernel = CompiledKernel.unpacked(candidate)
    code = bytearray(kernel.code)
    for section in read_elf(kernel.code).sections:
        if section.flags & EXEC and section.data:
            at = kernel.code.index(section.data)
            code[at : at + section.size] = bytes(section.size)
    return replace(kernel, code=bytes(code)).packed()


def test_what_a_candidate_does_costs_its_session(served: Served) -> None:
    with served.connect() as device:
        target = tw.Target.of(device.target)
        measurer = RemoteMeasurer(OneDevice(device), timeout=2.0)

        def measured(code: bytes) -> str | None:
            ((_, found),) = measurer.measure([code], 2, early=False)
            return found.failure

        def candidate(function: Any, scheduler: str = "given") -> bytes:
            options = replace(DEFAULTS, scheduler=scheduler, prepares_there=True)
            return compile_function(replace(function, name="f"), target, options)

        try:
            assert not measurer.begin(Task(scale(), target), candidate(scale())).failure
            assert measured(candidate(scale(2.5))) == "wrong answer"
            assert measured(candidate(forever)) == "time-out"
            assert measured(faulting(candidate(scale()))) == "crash"
            assert measured(b"no kernel") == "error"
            assert measured(candidate(scale(), "rules {}")) is None
        finally:
            measurer.close()


# ---- trackers -----------------------------------------------------------------------------------


@pytest.fixture
def tracked(program: Path, tmp_path: Path) -> Iterator[tuple[Served, Any]]:
    """A server that a tracker gives out, and the tracker."""
    tw.rpc.write_key(tmp_path / "key")
    with started("tracker", tmp_path / "key", tmp_path / "t", "--port", "0") as tracker:
        made = Served(program, tmp_path, "--tracker", tracker.address)
        try:
            found = tw.rpc.connect(tracker.address, tmp_path / "key")
            until(lambda: found.devices())
            yield made, found
        finally:
            assert made.stop() == 0


def _in_use(tracker: Any) -> int:
    return sum(device["in_use"] for device in tracker.devices())


def test_a_tracker_gives_it_out(tracked: tuple[Served, Any]) -> None:
    served, tracker = tracked
    (listed,) = tracker.devices()
    assert listed["name"] == "dev" and listed["address"] == served.address
    x = random(5, 24)
    for _ in range(2):
        with tracker.request("dev", timeout=20) as device:
            local = tw.compile(_graph(), target=device.target)
            np.testing.assert_array_equal(device.load(local)(x), local(x))
            until(lambda: _in_use(tracker) == 1)
        until(lambda: _in_use(tracker) == 0)
    with pytest.raises(tw.UserError, match=r"it is given out by the tracker at .*: request it"):
        served.connect()


def test_a_ticket_lets_one_client_in_once(tracked: tuple[Served, Any]) -> None:
    served, tracker = tracked
    link = Link(served.address, read_key(served.key))
    channel, _ = Link(tracker.address, read_key(served.key)).open()
    asked = {"call": "request", "name": "dev", "priority": 0, "seconds": 20.0, "client": "me"}
    channel.send(Kind.REQUEST, 1, asked)
    ticket = bytes.fromhex(channel.answer(1)[1]["ticket"])
    link.open(ticket)[0].close()
    with pytest.raises(tw.UserError, match="the ticket has been used"):
        link.open(ticket)
    with pytest.raises(tw.UserError, match="request it there"):
        link.open(bytes(31) + b"x")


def test_a_tracker_that_starts_again_knows_it(program: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    tw.rpc.write_key(key)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(started("tracker", key, tmp_path / "t", "--port", "0"))
        made = Served(program, tmp_path, "--tracker", first.address)
        stack.callback(made.stop)
        with tw.rpc.connect(first.address, key).request("dev", timeout=20) as device:
            first.kill()
            port = str(first.port)
            second = stack.enter_context(started("tracker", key, tmp_path / "u", "--port", port))
            tracker = tw.rpc.connect(second.address, key)
            until(lambda: tracker.devices() and _in_use(tracker) == 1)
            device.ping()
        until(lambda: _in_use(tracker) == 0)


def test_an_address_that_is_none_is_refused(program: Path, tmp_path: Path) -> None:
    tw.rpc.write_key(tmp_path / "key")
    command = [str(program), "serve", "--key-file", str(tmp_path / "key"), "--tracker", "here"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "here is no address of a tracker" in done.stderr


# ---- clients ------------------------------------------------------------------------------------


def test_another_key_is_of_no_use(served: Served, tmp_path: Path) -> None:
    tw.rpc.write_key(tmp_path / "other")
    with pytest.raises(tw.UserError, match="it has another key"):
        tw.rpc.connect(served.address, key=tmp_path / "other")
    with served.connect() as device:
        device.ping()


def test_one_session_at_a_time(served: Served) -> None:
    with served.connect() as device:
        device.ping()
        with pytest.raises(tw.UserError, match="all of its 1 sessions are in use"):
            served.connect()
        device.ping()


def test_a_call_that_takes_too_long_ends_the_session(program: Path, tmp_path: Path) -> None:
    made = Served(program, tmp_path, "--call-seconds", "1")
    x = random(5, 24)
    try:
        with made.connect() as device:
            model = device.load(tw.compile(_graph(), target=device.target))
            with pytest.raises(DeviceLostError, match="a call took longer than the 1 s") as told:
                model.benchmark([x], seconds=20)
            assert told.value.kind == "time-out"
            assert model(x).shape == (5, 10)
    finally:
        made.stop()


def test_damaged_messages_and_slow_peers_leave_it_serving(served: Served) -> None:
    host, _, port = served.address.partition(":")
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(104), b"TWRPC\1\1\0" + bytes(96)):
        with socket.create_connection((host, int(port)), 5) as sock:
            sock.sendall(data)
            assert sock.recv(40, socket.MSG_WAITALL)[:7] == b"TWRPC\1\1"
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(1) == b""
    with socket.create_connection((host, int(port)), 5), served.connect() as device:
        with pytest.raises(DeviceLostError, match="damaged messages") as told:
            device.call("run", {"model": 7})
        assert told.value.kind == "damaged"
        device.ping()
        assert device.is_open


def test_a_client_that_vanishes_gives_its_session_back(served: Served) -> None:
    device = served.connect()
    device._channel.socket.close()
    started = time.monotonic()
    with served.connect() as other:
        other.ping()
    assert time.monotonic() - started < 5
