"""A tuner at work on an emulated microcontroller, over its serial line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.monitors import monitor_board, running
from tests.emulated.test_boards import keywords
from tests.emulated.test_serial import image
from tests.tune.test_measuring import forever, scale
from tilewright.ir import Function
from tilewright.kernels.compiled import CompiledKernel, compile_function
from tilewright.kernels.pipeline import DEFAULTS
from tilewright.rpc import SerialDevice
from tilewright.runtime import Measured
from tilewright.support.elf import EXEC, read_elf
from tilewright.tune import read_records
from tilewright.tune.measuring.devices import OneDevice
from tilewright.tune.measuring.remote import RemoteMeasurer
from tilewright.tune.tasks import Task

BOARD = tw.Target.of("llvm -mcpu=cortex-m4")
UNDEFINED = b"\x00\xde"
#: Writes 0x05fa0004 to 0xe000ed0c, which resets the processor.
RESET = bytes.fromhex("0148 0249 0160 fee7 0ced00e0 0400fa05")


@pytest.fixture(scope="module")
def device() -> Iterator[SerialDevice]:
    with (
        running(monitor_board("cortex-m4")) as port,
        tw.rpc.connect_serial(port, patience=5) as found,
    ):
        yield found


@pytest.fixture
def measurer(device: SerialDevice) -> Iterator[RemoteMeasurer]:
    made = RemoteMeasurer(OneDevice(device))
    begun = made.begin(Task(scale(), BOARD), packed(scale()))
    assert not begun.failure and begun.seconds > 0, begun
    yield made
    made.close()


def packed(function: Function, scheduler: str = "given") -> bytes:
    options = replace(DEFAULTS, scheduler=scheduler, prepares_there=True)
    return compile_function(replace(function, name="f"), BOARD, options)


def with_code(code: bytes) -> bytes:
    """A kernel whose machine code is this, over and over."""
    kernel = CompiledKernel.unpacked(packed(scale()))
    made = bytearray(kernel.code)
    for section in read_elf(kernel.code).sections:
        if section.flags & EXEC and section.data:
            at = kernel.code.index(section.data)
            made[at : at + section.size] = (code * section.size)[: section.size]
    return replace(kernel, code=bytes(made)).packed()


def measured(measurer: RemoteMeasurer, code: bytes) -> Measured:
    ((_, found),) = measurer.measure([code], 2, early=False)
    return found


@pytest.mark.parametrize("how", ["wrong answer", "time-out", "crash", "memory", "error", "lost"])
def test_what_a_candidate_does_costs_its_trial(measurer: RemoteMeasurer, how: str) -> None:
    kernel = CompiledKernel.unpacked(packed(scale()))
    candidates = {
        "wrong answer": packed(scale(2.5)),
        "time-out": packed(forever),
        "crash": with_code(UNDEFINED),
        "memory": replace(kernel, workspace=1 << 23).packed(),
        "error": b"no kernel",
        "lost": with_code(RESET),
    }
    assert measured(measurer, candidates[how]).failure == how
    fine = measured(measurer, packed(scale(), "rules {}"))
    assert fine.failure is None and len(fine.ratios) == 2


def test_what_is_counted_is_the_same_each_time(measurer: RemoteMeasurer) -> None:
    candidate = packed(scale(), "rules {}")
    first, second = (measured(measurer, candidate) for _ in range(2))
    assert first.ratios == pytest.approx(second.ratios, rel=0.01)
    assert measured(measurer, packed(scale())).ratio == pytest.approx(1, rel=0.01)


def test_a_model_is_tuned_on_a_board(device: SerialDevice, tmp_path: Path) -> None:
    data, path = keywords(), tmp_path / "r.jsonl"
    before = device.load(tw.compile(data, device.target)).ticks([image()])
    summary = tw.tune(data, on=device, records=path, trials=6, budget=300, tuner="ga")
    records = [r for r in read_records(path) if r.kind == "trial"]
    assert summary.trials == len(records) > 6 and not summary.failures
    assert {r.target for r in records} == {device.target}
    assert all(r.ratio and r.seconds and r.reference for r in records)
    assert summary.gain > 1, "there is something to gain in this network"
    with tw.tune.apply_best(path):
        there = device.load(tw.compile(data, device.target))
    np.testing.assert_array_equal(there.run([image()])[0], tw.compile(data).run([image()])[0])
    assert there.ticks([image()]) < before


def test_a_model_is_tuned_from_a_shell(tmp_path: Path) -> None:
    model, records = tmp_path / "keywords.tflite", tmp_path / "r.jsonl"
    model.write_bytes(keywords())
    with running(monitor_board("cortex-m4")) as port:
        words = ["tune", model, "--on", port, "--records", records, "--trials", 1, "--tuner", "ga"]
        done = subprocess.run(
            [sys.executable, "-m", "tilewright", *map(str, words)], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    trials = [r for r in read_records(records) if r.kind == "trial"]
    assert trials and {r.target for r in trials} == {str(BOARD)}
