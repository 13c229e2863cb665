"""Single kernels on a server in C: called, timed, tuned, and what it does with hostile calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.device_runtime.served import Served
from tests.test_compile import random, weights
from tests.tune.test_measuring import forever, scale
from tilewright import te
from tilewright.graph import Builder
from tilewright.kernels.compiled import CompiledKernel, compile_function
from tilewright.kernels.pipeline import DEFAULTS
from tilewright.rpc import DeviceLostError
from tilewright.rpc.wire.signatures import kernel_data
from tilewright.rpc.wire.values import Packed
from tilewright.support.elf import EXEC, read_elf
from tilewright.tensor import f32, i64
from tilewright.tune import read_records
from tilewright.tune.measuring.devices import OneDevice
from tilewright.tune.measuring.remote import RemoteMeasurer
from tilewright.tune.tasks import Task

#: Damaged calls that are sent.
HOSTILE = 200


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
        assert {r.target for r in records} == {tw.Target.of(device.target).machine}
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
