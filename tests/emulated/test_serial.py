"""Sessions over a serial line with emulated boards: the monitor under QEMU, its port as a pty."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.monitors import monitor_board, running
from tests.emulated.test_boards import classifier, keywords
from tilewright import te
from tilewright.device_runtime import MONITOR_BOARDS
from tilewright.graph import Builder, evaluate
from tilewright.rpc import DeviceLostError, SerialDevice
from tilewright.rpc.serial.lines import stream_of
from tilewright.rpc.serial.memory import BoardPart
from tilewright.rpc.serial.monitor import CallEndedError

PROCESSORS = [board.cpu for board in MONITOR_BOARDS.values()]
#: A processor's undefined instruction, by its number in ELF files.
UNDEFINED = {40: b"\x00\xde", 243: bytes(4)}
#: A jump to itself.
FOREVER = {40: b"\xfe\xe7", 243: b"\x01\xa0"}


@pytest.fixture(scope="module", params=PROCESSORS)
def port(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(monitor_board(str(request.param))) as path:
        yield path


@pytest.fixture(scope="module")
def device(port: str) -> Iterator[SerialDevice]:
    with tw.rpc.connect_serial(port, patience=5) as found:
        yield found


def plus(number: int) -> Any:
    b = Builder()
    b.output(b.add(b.input("x", "i8", (9,)), np.int8(number)))
    return b.build()


def image(seed: int = 2) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    return np.random.default_rng(seed).integers(-128, 128, (1, 9, 7, 3)).astype(np.int8)


def test_a_quantized_network_gives_the_same_bytes(device: SerialDevice) -> None:
    data, told = keywords(), list[tuple[int, int]]()
    here = tw.compile(data, opt_level=0)
    there = device.load(tw.compile(data, device.target), progress=lambda n, m: told.append((n, m)))
    assert told[-1][0] == told[-1][1] > 5000 and len(told) > 5
    for seed in (2, 3):
        (got,) = there.run([image(seed)])
        np.testing.assert_array_equal(got, here.run([image(seed)])[0])


def test_runs_are_counted(device: SerialDevice) -> None:
    model = tw.compile(keywords(), device.target)
    there = device.load(model)
    timing = there.time([image()], repeat=3)
    seconds = there.ticks([image()]) / device.facts.clock
    assert timing.calls == 1 and timing.median == pytest.approx(seconds, rel=0.02)
    # Under emulation an instruction takes a nanosecond, and other firmware counts as many.
    alone = monitor_board(device.facts.processor).run(model, [image()])
    assert seconds == pytest.approx(alone.instructions / 1e9, rel=0.01)


def test_a_profile_counts_every_kernel(device: SerialDevice) -> None:
    model: Any = tw.compile(keywords(), device.target)
    there, free = device.load(model), device.memory.largest
    profile = there.profile([image()], runs=2)
    assert [e.name for e in profile.events] == 2 * [name for name, _ in model.calls]
    assert all(a.end <= b.start for a, b in pairwise(profile.events))
    whole = there.ticks([image()]) / device.facts.clock
    assert profile.seconds == pytest.approx(whole, rel=0.05)
    first, second = (
        [e.end - e.start for e in profile.events[k :: len(model.calls)]]
        for k in (0, len(model.calls) - 1)
    )
    assert first[0] == pytest.approx(first[1], rel=0.05)
    assert second[0] == pytest.approx(second[1], rel=0.05)
    device.ping()
    assert device.memory.largest == free, "the recorder is left in the board's memory"


def test_an_artifact_is_loaded(device: SerialDevice, tmp_path: Path) -> None:
    model: Any = tw.compile(keywords(), device.target)
    path = tmp_path / "keywords.twm"
    tw.save([tw.compile(keywords()), model], path)
    there = device.load(path)
    np.testing.assert_array_equal(there.run([image()])[0], tw.load(path).run([image()])[0])
    assert len(there.profile([image()], runs=1).events) == len(model.calls)


def test_tensors_that_registers_do_not_hold(device: SerialDevice) -> None:
    b = Builder()
    given = [b.input(f"x{k}", "i8", (5,)) for k in range(7)]
    wide = b.input("wide", "i8", (3000,))
    sums = [b.add(x, y) for x, y in pairwise(given)]
    b.output(*sums, b.add(wide, np.int8(3)))
    graph, rng = b.build(), np.random.default_rng(4)
    arrays = [rng.integers(-60, 60, (5,)).astype(np.int8) for _ in range(7)]
    arrays.append(rng.integers(-60, 60, (3000,)).astype(np.int8))
    there = device.load(tw.compile(graph, device.target))
    own = np.empty(5, np.int8)
    got = there.run(arrays, out=[None, own])
    assert got[1] is own
    for a, want in zip(got, evaluate(graph, arrays), strict=True):
        np.testing.assert_array_equal(a, want)


def test_several_models_stay_apart(device: SerialDevice) -> None:
    there = [device.load(tw.compile(plus(k), device.target)) for k in (1, 2)]
    x = np.arange(9).astype(np.int8)
    for _ in range(2):
        for k in (0, 1):
            np.testing.assert_array_equal(there[k].run({"x": x})[0], x + np.int8(k + 1))
    del there[0]
    again = device.load(tw.compile(plus(3), device.target))
    np.testing.assert_array_equal(again.run([x])[0], x + np.int8(3))
    np.testing.assert_array_equal(there[0].run([x])[0], x + np.int8(2))


def test_floats_where_the_processor_has_them(device: SerialDevice) -> None:
    graph, rng = classifier(), np.random.default_rng(5)
    x = rng.standard_normal((1, 3, 9, 7)).astype(np.float32)
    model = tw.compile(graph, device.target)
    if device.facts.machine == 243:
        with pytest.raises(tw.UserError, match=r"it calls __\w+, of the compiler's library"):
            device.load(model)
        return
    (got,) = device.load(model).run([x])
    np.testing.assert_allclose(got, evaluate(graph, [x])[0], rtol=1e-4, atol=1e-6)


def test_a_fault_ends_the_call_alone(device: SerialDevice) -> None:
    data = keywords()
    there = device.load(tw.compile(data, device.target))
    place = device.memory.take(64, "a fault")
    device.monitor.write(place, UNDEFINED[device.facts.machine])
    for _ in range(2):
        with pytest.raises(tw.UserError, match=f"the processor faulted at {place:#010x}"):
            device.monitor.call(place | (device.facts.machine == 40), [], 5)
    np.testing.assert_array_equal(there.run([image()])[0], tw.compile(data).run([image()])[0])


def test_kernels_are_called_and_measured_side_by_side(device: SerialDevice) -> None:
    k = te.reduce_axis(32, name="k")
    a, b = te.placeholder((32, 32), "int8", name="A"), te.placeholder((32, 32), "int8", name="B")

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.cast(a[i, k], "int32") * te.cast(b[k, j], "int32"), axis=k)

    f = te.function([a, b], [te.compute((32, 32), element, name="C")], name="matmul")
    built = [tw.build(f, device.target), tw.build(tw.Schedule(f), device.target)]
    kernels = [device.load_kernel(module.as_code()) for module in built]
    rng = np.random.default_rng(6)
    x, y = (rng.integers(-128, 128, (32, 32)).astype(np.int8) for _ in range(2))
    for kernel in kernels:
        kernel(x, y, result := np.zeros((32, 32), np.int32))
        np.testing.assert_array_equal(result, x.astype(np.int32) @ y.astype(np.int32))
    fast, plain = device.measure(kernels, [x, y, np.zeros((32, 32), np.int32)], rounds=3)
    assert 0 < fast.median < plain.median and len(fast.samples) == 3


class NoisyLine:
    """A line that damages some of what is sent to the board, not all that is sent again."""

    def __init__(self, port: str) -> None:
        self._line, self._rng = stream_of(port, 115_200), np.random.default_rng(0)
        self._count = 0

    def receive(self, seconds: float) -> bytes:
        return self._line.receive(seconds)

    def send(self, data: bytes, seconds: float) -> None:
        made = bytearray(data)
        self._count += 1
        if self._count % 3 == 1:
            for _ in range(self._rng.integers(1, 4)):
                made[self._rng.integers(len(made))] = self._rng.integers(256)
        if self._count % 4 == 0:
            made = bytearray(self._rng.bytes(2000)) + made
        self._line.send(bytes(made), seconds)

    def close(self) -> None:
        self._line.close()


@pytest.mark.parametrize("cpu", PROCESSORS)
def test_the_monitor_survives_noise(cpu: str) -> None:
    data = np.random.default_rng(1).bytes(5_000)
    with (
        running(monitor_board(cpu)) as port,
        tw.rpc.connect_serial(NoisyLine(port), patience=2) as device,
    ):
        place = device.memory.take(len(data), "bytes")
        device.monitor.write(place, data)
        assert device.monitor.read(place, len(data)) == data


@pytest.mark.parametrize("seconds", [0.0005, 0.01])
def test_a_call_that_never_ends_is_ended(device: SerialDevice, seconds: float) -> None:
    loop = BoardPart(device, 64, "a loop")
    device.monitor.write(loop.begin, FOREVER[device.facts.machine])
    entry = loop.begin | (device.facts.machine == 40)
    for _ in range(2):
        with pytest.raises(CallEndedError, match=f"was ended at {loop.begin:#010x}") as told:
            device.monitor.call(entry, [], seconds)
        assert told.value.kind == "time-out"
    there = device.load(tw.compile(plus(1), device.target))
    np.testing.assert_array_equal(there.run([np.zeros(9, np.int8)])[0], np.ones(9, np.int8))


#: Machine code that writes to 0xf0000000, pushes, and jumps there: Thumb, RISC-V.
WRONG = {
    40: {
        "a wild write": "f020 0006 0160 7047",
        "a wild stack": "f020 0006 8546 02b4",
        "a jump to nowhere": "f020 0006 0130 0047",
    },
    243: {
        "a wild stack": "370100f0 232ea1fe",
        "a wild write": "b70200f0 23a0b200 67800000",
        "a jump to nowhere": "b70200f0 67800200",
    },
}


@pytest.mark.parametrize("what", ["a wild write", "a wild stack", "a jump to nowhere"])
def test_other_faults_end_the_call_as_well(device: SerialDevice, what: str) -> None:
    code = WRONG[device.facts.machine][what]
    place = device.memory.take(64, what)
    device.monitor.write(place, bytes.fromhex(code))
    with pytest.raises(tw.UserError, match="the processor faulted"):
        device.monitor.call(place | (device.facts.machine == 40), [], 5)
    device.ping()
    device.memory.give_back(place)


def test_a_board_that_resets_itself_is_noticed() -> None:
    with (
        running(monitor_board("cortex-m4")) as port,
        tw.rpc.connect_serial(port, patience=2) as device,
    ):
        place = device.memory.take(64, "a reset")
        # Writes 0x05fa0004 to 0xe000ed0c, which resets the processor.
        code = "0148 0249 0160 fee7 0ced00e0 0400fa05"
        device.monitor.write(place, bytes.fromhex(code))
        with pytest.raises(DeviceLostError, match="it was reset"):
            device.monitor.call(place | 1, [], 0.5)
        with pytest.raises(DeviceLostError, match="it was reset"):
            device.ping()
        device.restart()
        device.ping()


def test_a_board_that_is_gone_is_told() -> None:
    with running(monitor_board("cortex-m4")) as port:
        device = tw.rpc.connect_serial(port, patience=1)
        there = device.load(tw.compile(plus(1), device.target))
    with device, pytest.raises(DeviceLostError, match="is lost"):
        there.run([np.zeros(9, np.int8)])


def test_memory_outside_of_the_window_is_refused(device: SerialDevice) -> None:
    begin, end = device.facts.window, device.facts.window + device.facts.window_bytes
    for place, size in ((begin - 4, 4), (end - 3, 4), (end, 1), (0, 4), (0xFFFFFFFE, 4)):
        with pytest.raises(tw.UserError, match="outside of the window"):
            device.monitor.read(place, size)
        with pytest.raises(tw.UserError, match="outside of the window"):
            device.monitor.clear(place, size)
        with pytest.raises(tw.UserError, match="outside of the window"):
            device.monitor.write(place, b"abcd"[:size])
    with pytest.raises(tw.UserError, match="outside of the window"):
        device.monitor.call(0, [], 1)
    device.monitor.write(end - 4, b"abcd")
    assert device.monitor.read(end - 4, 4) == b"abcd"
