"""Sessions over a serial line with emulated boards: the monitor under QEMU, its port as a pty."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.monitors import monitor_board, running
from tests.emulated.test_boards import keywords
from tilewright.device_runtime import MONITOR_BOARDS
from tilewright.rpc import SerialDevice
from tilewright.rpc.serial.lines import open_line

PROCESSORS = [board.cpu for board in MONITOR_BOARDS.values()]
#: A processor's undefined instruction, by its number in ELF files.
UNDEFINED = {40: b"\x00\xde", 243: bytes(4)}


@pytest.fixture(scope="module", params=PROCESSORS)
def port(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(monitor_board(str(request.param))) as path:
        yield path


@pytest.fixture(scope="module")
def device(port: str) -> Iterator[SerialDevice]:
    with tw.rpc.connect_serial(port, patience=5) as found:
        yield found


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
    there = device.load(tw.compile(keywords(), device.target))
    timing = there.time([image()], repeat=3)
    seconds = there.ticks([image()]) / device.facts.clock
    assert timing.calls == 1 and timing.median == pytest.approx(seconds, rel=0.02)
    # Under emulation an instruction takes a nanosecond.
    assert 1e-4 < seconds < 1e-2


def test_a_fault_ends_the_call_alone(device: SerialDevice) -> None:
    data = keywords()
    there = device.load(tw.compile(data, device.target))
    place = device.memory.take(64, "a fault")
    device.monitor.write(place, UNDEFINED[device.facts.machine])
    for _ in range(2):
        with pytest.raises(tw.UserError, match=f"the processor faulted at {place:#010x}"):
            device.monitor.call(place | (device.facts.machine == 40), [], 5)
    np.testing.assert_array_equal(there.run([image()])[0], tw.compile(data).run([image()])[0])


class NoisyLine:
    """A line that damages some of what is sent to the board, not all that is sent again."""

    def __init__(self, port: str) -> None:
        self._line, self._rng = open_line(port, 115_200), np.random.default_rng(0)
        self._count = 0

    def read(self, seconds: float) -> bytes:
        return self._line.read(seconds)

    def write(self, data: bytes, seconds: float) -> None:
        made = bytearray(data)
        self._count += 1
        if self._count % 3 and self._rng.random() < 0.3:
            for _ in range(self._rng.integers(1, 4)):
                made[self._rng.integers(len(made))] = self._rng.integers(256)
        if self._rng.random() < 0.1:
            made = bytearray(self._rng.bytes(3000)) + made
        self._line.write(bytes(made), seconds)

    def close(self) -> None:
        self._line.close()


@pytest.mark.parametrize("cpu", PROCESSORS)
def test_the_monitor_survives_noise(cpu: str) -> None:
    data = np.random.default_rng(1).bytes(10_000)
    with (
        running(monitor_board(cpu)) as port,
        tw.rpc.connect_serial(NoisyLine(port), patience=0.5) as device,
    ):
        place = device.memory.take(len(data), "bytes")
        device.monitor.write(place, data)
        assert device.monitor.read(place, len(data)) == data


def test_a_call_that_never_ends_is_ended() -> None:
    with (
        running(monitor_board("cortex-m4")) as port,
        tw.rpc.connect_serial(port, patience=5) as device,
    ):
        place = device.memory.take(64, "a loop")
        # A jump to itself.
        device.monitor.write(place, b"\xfe\xe7")
        with pytest.raises(tw.UserError, match=f"was ended at {place:#010x}"):
            device.monitor.call(place | 1, [], 0.01)
        device.ping()


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
