"""Sessions over a serial line: messages, noise, and all that can go wrong, with a fake board."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.rpc.fake_board import WINDOW, WINDOW_BYTES, FakeBoard, Noise
from tilewright import te
from tilewright.graph import Builder
from tilewright.rpc import DeviceLostError, SerialDevice, UnreachableError
from tilewright.rpc.serial.frames import Frame, FrameReader, framed
from tilewright.rpc.serial.memory import BoardMemory
from tilewright.rpc.serial.monitor import CallEndedError

FRAMES = st.builds(
    Frame,
    kind=st.integers(0, 255),
    number=st.integers(0, 0xFFFF),
    session=st.integers(0, 0xFFFF_FFFF),
    body=st.binary(max_size=80) | st.lists(st.sampled_from([0xC0, 0xDB, 0xDC])).map(bytes),
)
#: How bytes on a line are damaged: where, what, and how.
DAMAGE = st.tuples(st.integers(0, 400), st.integers(0, 255), st.sampled_from(["set", "put", "cut"]))
LAST = Frame(3, 7, 9, b"whole")


def damaged(data: bytes, damage: list[tuple[int, int, str]]) -> bytes:
    made = bytearray(data)
    for place, byte, how in damage:
        at = place % (len(made) + 1)
        made[at : at + (how != "put")] = b"" if how == "cut" else bytes([byte])
    return bytes(made)


def connected(board: FakeBoard, patience: float = 0.02) -> SerialDevice:
    return tw.rpc.connect_serial(board, baud=10_000_000, patience=patience, seconds=0.05)


# ---- messages -----------------------------------------------------------------------------------


@given(st.lists(FRAMES, max_size=4), st.integers(1, 30))
def test_messages_come_through_in_pieces_of_any_size(frames: list[Frame], step: int) -> None:
    data, reader = b"".join(map(framed, frames)), FrameReader()
    pieces = [data[k : k + step] for k in range(0, len(data), step)]
    assert [f for piece in pieces for f in reader.read(piece)] == frames


@given(st.lists(FRAMES, min_size=1, max_size=4), st.lists(DAMAGE, max_size=6))
def test_damaged_messages_are_dropped_and_the_next_is_found(
    frames: list[Frame], damage: list[tuple[int, int, str]]
) -> None:
    found = FrameReader().read(damaged(b"".join(map(framed, frames)), damage) + framed(LAST))
    assert found[-1] == LAST
    assert all(f in frames for f in found[:-1]), "a damaged message was taken for a whole one"


@given(st.binary(max_size=300))
def test_noise_alone_is_no_message(noise: bytes) -> None:
    assert FrameReader().read(noise + b"\xc0") == []


def test_what_never_ends_does_not_fill_the_memory() -> None:
    reader = FrameReader()
    for _ in range(64):
        assert reader.read(bytes(1 << 16)) == []
    assert len(reader._begun) <= 1 << 17  # pyright: ignore[reportPrivateUsage]
    assert reader.read(framed(LAST)) == [LAST]


# ---- a line with noise --------------------------------------------------------------------------


class Bursts:
    """Damages some of what is sent, never more than two pieces one after the other."""

    def __init__(self, plan: list[list[tuple[int, int, str]]]) -> None:
        self._plan, self._count = plan, 0

    def __call__(self, data: bytes) -> bytes:
        self._count += 1
        if not self._plan or self._count % 3 == 0:
            return data
        return damaged(data, self._plan.pop())


PLANS = st.lists(st.lists(DAMAGE, max_size=4), max_size=6)


@settings(deadline=None, max_examples=60)
@given(PLANS, st.binary(min_size=1, max_size=300))
def test_a_session_survives_noise_to_the_board(plan: Any, data: bytes) -> None:
    board = FakeBoard(to_board=Bursts(plan))
    _exchanged(board, data)


@settings(deadline=None, max_examples=60)
@given(PLANS, st.binary(min_size=1, max_size=300))
def test_a_session_survives_noise_to_the_host(plan: Any, data: bytes) -> None:
    board = FakeBoard(to_host=Bursts(plan))
    _exchanged(board, data)


def _exchanged(board: FakeBoard, data: bytes) -> None:
    device = connected(board, patience=0.003)
    monitor = device.monitor
    monitor.write(WINDOW + 16, data)
    assert monitor.read(WINDOW + 16, len(data)) == data
    monitor.write(WINDOW, b"\x05")
    for count in (1, 2, 3):
        assert monitor.call(WINDOW | 1, [1, 2], 0.01).ticks == 1234
        assert board.calls == count, "a call was made twice"
    monitor.clear(WINDOW + 16, len(data))
    assert not any(board.memory[16 : 16 + len(data)])


def _deaf(data: bytes) -> bytes:
    del data
    return b""


def _swapped(data: bytes) -> bytes:
    return data[::-1]


@pytest.mark.parametrize("noise", [_deaf, _swapped, lambda data: data[:-3], lambda d: d[4:]])
def test_nobody_waits_for_a_board_that_does_not_answer(noise: Noise) -> None:
    board = FakeBoard()
    device, begin = connected(board), time.monotonic()
    board.to_host = noise
    with pytest.raises(DeviceLostError, match="no sign of life, after 4 tries"):
        device.ping()
    assert time.monotonic() - begin < 5
    board.to_host = lambda data: data
    device.ping()


# ---- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [_deaf, _swapped])
def test_there_is_no_board(noise: Noise) -> None:
    board = FakeBoard(to_board=noise)
    with pytest.raises(UnreachableError, match=r"no board answers on FakeBoard.*(?s:.)*remedy"):
        connected(board)
    assert board.is_cut, "the line is left open"


def test_there_is_no_port(tmp_path: Any) -> None:
    with pytest.raises(UnreachableError, match=r"cannot open .*No such file"):
        tw.rpc.connect_serial(str(tmp_path / "tty"))
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(UnreachableError, match="it is no serial port"):
        tw.rpc.connect_serial(str(tmp_path / "plain"))
    with pytest.raises(UnreachableError, match=r"cannot open tcp://127\.0\.0\.1:1"):
        tw.rpc.connect_serial("tcp://127.0.0.1:1")
    with pytest.raises(tw.UserError, match="is no address"):
        tw.rpc.connect_serial("tcp://nowhere")


def test_a_port_where_nobody_is_is_no_board() -> None:
    ours, theirs = os.openpty()
    try:
        with pytest.raises(UnreachableError, match="no board answers"):
            tw.rpc.connect_serial(os.ttyname(theirs), patience=0.02)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_socket_is_a_line_and_its_end_is_told() -> None:
    ours, theirs = socket.socketpair()
    board = FakeBoard()

    def serve() -> None:
        for _ in range(2):
            board.send(theirs.recv(4096), 1)
            theirs.sendall(board.receive(1))
        theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with tw.rpc.connect_serial(ours, patience=5) as device:
        device.ping()
        thread.join()
        with pytest.raises(DeviceLostError, match=r"is lost: (Broken pipe|the line was cut)"):
            device.monitor.read(WINDOW, 4)


def test_another_version_is_refused() -> None:
    with pytest.raises(tw.UserError, match="speaks version 2, and here it is 1"):
        connected(FakeBoard(version=2))


def test_a_line_that_is_cut_is_told() -> None:
    board = FakeBoard()
    device = connected(board)
    model = device.load(small())
    board.is_cut = True
    with pytest.raises(DeviceLostError, match="is lost: the line was cut"):
        model.run([np.zeros(4, np.int8)])


def test_a_board_that_was_reset_answers_nothing() -> None:
    board = FakeBoard()
    device = connected(board)
    model = device.load(small())
    board.reset()
    with pytest.raises(DeviceLostError, match="it was reset"):
        model.run([np.zeros(4, np.int8)])


def test_a_new_session_begins_with_the_models_of_the_old_one() -> None:
    board = FakeBoard()
    device = connected(board)
    model = device.load(small())
    board.reset()
    with pytest.raises(DeviceLostError, match="it was reset"):
        device.ping()
    device.restart()
    # Its first byte is what the fake board returns: the code is there.
    with pytest.raises(tw.UserError, match="its code says 181"):
        model.run([np.zeros(4, np.int8)])
    assert board.calls == 1
    first = device.memory.largest
    del model
    device.ping()
    assert device.memory.largest > first, "what is gone with its session is freed"


def test_a_board_that_another_host_took_over_answers_nothing() -> None:
    board = FakeBoard()
    first, second = connected(board), connected(board)
    second.ping()
    with pytest.raises(DeviceLostError, match="another host"):
        first.ping()


def test_a_fault_is_told_and_the_session_goes_on() -> None:
    device = connected(FakeBoard())
    device.monitor.write(WINDOW, b"\xff")
    with pytest.raises(CallEndedError, match=r"faulted at 0x20000000: status 0x10000") as told:
        device.monitor.call(WINDOW, [], 0.01)
    assert told.value.kind == "crash"
    device.ping()


def test_a_closed_line_is_refused() -> None:
    with connected(FakeBoard()) as device:
        pass
    with pytest.raises(tw.UserError, match="the line to the board is closed"):
        device.ping()


# ---- models -------------------------------------------------------------------------------------


def small(size: int = 4, cpu: str = "cortex-m4") -> Any:
    b = Builder()
    b.output(b.add(b.input("x", "i8", (size,)), np.arange(size).astype(np.int8)))
    return tw.compile(b.build(), f"llvm -mcpu={cpu}")


def test_a_model_that_does_not_fit_is_refused() -> None:
    device = connected(FakeBoard())
    with pytest.raises(tw.UserError, match="too large for the board: it takes 196,992 bytes"):
        device.load(small(1 << 16))
    kept = device.load(small())
    assert device.memory.largest < WINDOW_BYTES
    del kept
    device.ping()
    assert device.memory.largest == WINDOW_BYTES


def test_a_monitor_that_is_too_old_for_profiles_is_told() -> None:
    model = connected(FakeBoard()).load(small())
    with pytest.raises(tw.UserError, match=r"does not know the request(?s:.)*flash the monitor"):
        model.profile([np.zeros(4, np.int8)])


def test_a_board_has_one_thread() -> None:
    with pytest.raises(tw.UserError, match="cannot run 2 threads"):
        connected(FakeBoard()).load(small(), threads=2)


def test_artifacts_without_the_board_are_refused(tmp_path: Any) -> None:
    small(cpu="rv32imc").save(tmp_path / "net.twm")
    with pytest.raises(tw.UserError, match=r"holds nothing for llvm .*-mcpu=cortex-m4"):
        connected(FakeBoard()).load(tmp_path / "net.twm")


def test_models_of_other_machines_are_refused() -> None:
    device = connected(FakeBoard())
    with pytest.raises(tw.UserError, match=r"compile it for 'llvm .*-mcpu=cortex-m4"):
        device.load(small(cpu="rv32imc"))
    with pytest.raises(tw.UserError, match="it was compiled for"):
        b = Builder()
        b.output(b.relu(b.input("x", "f32", (4,))))
        device.load(tw.compile(b.build()))


def test_a_model_that_stops_is_told() -> None:
    board = FakeBoard()
    model = connected(board).load(small())
    board.memory[model.entry - WINDOW] = 3
    with pytest.raises(tw.UserError, match="the model stopped on the board"):
        model.run([np.zeros(4, np.int8)])


def test_kernels_whose_sizes_are_not_known_are_refused() -> None:
    device, n = connected(FakeBoard()), te.var("n")
    x = te.placeholder((n,), "int32", name="x")
    f = te.function([x], [te.compute((n,), lambda i: x[i] + 1, name="y")], name="f")
    with pytest.raises(tw.UserError, match="the size of x is known only when it runs"):
        device.load_kernel(tw.build(f, device.target).as_code())
    z = te.placeholder((4,), "int32", name="z")
    g = te.function([z], [te.compute((4,), lambda i: z[i] + 1, name="y")], name="g")
    with pytest.raises(tw.UserError, match="memory that it works in is not known"):
        device.load_kernel(tw.build(g).as_code())


@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans()), max_size=40))
def test_parts_of_memory_do_not_overlap(steps: list[tuple[int, bool]]) -> None:
    memory, taken = BoardMemory(WINDOW + 4, WINDOW_BYTES - 4), dict[int, int]()
    for size, is_freed in steps:
        if is_freed and taken:
            memory.give_back(begin := next(iter(taken)))
            del taken[begin]
        elif size <= memory.largest - 64:
            begin = memory.take(size, "a part")
            assert begin % 64 == 0 and begin > WINDOW and begin + size <= WINDOW + WINDOW_BYTES
            assert all(begin + size <= b or b + s <= begin for b, s in taken.items())
            taken[begin] = size
    for begin in taken:
        memory.give_back(begin)
    assert memory.largest == WINDOW_BYTES - 64
