"""Candidates are built here, measured where there is no compiler, and applied here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Module
from tilewright.runtime import (
    Measured,
    PackedKernel,
    TrialModel,
    TrialTask,
    device_for,
    measure_bundle,
)
from tilewright.runtime.trials.alone import KernelAlone
from tilewright.runtime.trials.arguments import made_up_arguments
from tilewright.runtime.trials.bundle import Bundle
from tilewright.runtime.trials.running import constant_copies
from tilewright.tune import Record, read_records, write_records
from tilewright.tune.bundling import points_of
from tilewright.tune.counted import counted_tasks
from tilewright.tune.measuring.building import KernelBuilder
from tilewright.tune.measuring.data import trial_task
from tilewright.tune.spaces.rules import rule_space

#: A target whose kernels run here, by the executor, but are launched as a GPU's are.
TARGET = "simt"

#: Imports of the compiler fail in this process, and in those that it starts.
WITHOUT_LLVM = """
import sys
sys.modules["llvmlite"] = None
from tilewright.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


def network(rows: Any = 8) -> Module:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "f32", (rows, 16))
    b.output(b.relu(b.matmul(x, rng.standard_normal((16, 16)).astype(np.float32))))
    return b.build()


def compiled(rows: Any = 8) -> tw.Model:
    model = tw.compile(network(rows), TARGET)
    assert isinstance(model, tw.Model)
    return model


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "b.zip"
    summary = tw.tune.bundle(network(), TARGET, path, trials=1)
    assert (summary.tasks, summary.left_out, summary.bytes) == (1, 0, path.stat().st_size)
    assert summary.candidates == 1 and "1 candidates of 1 kernels" in str(summary)
    return path


@pytest.fixture(scope="module")
def records(bundle: Path) -> Path:
    """What a machine without a compiler has measured."""
    path, folder = bundle.with_name("r.jsonl"), bundle.with_name("site")
    folder.mkdir()
    # Every interpreter that starts sees to it that there is no LLVM.
    (folder / "sitecustomize.py").write_text('import sys; sys.modules["llvmlite"] = None\n')
    paths = [str(folder), str(Path(tw.__file__).parent.parent)]
    words = ["tune", "--measure", str(bundle), "--records", str(path), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LLVM, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["trials"] == 1 and not any(t["failures"] or t["error"] for t in told["tasks"])
    return path


def test_what_is_measured_there_is_a_record_here(records: Path) -> None:
    found = [r for r in read_records(records) if r.kind == "trial"]
    assert len(found) == 1
    assert all(r.ratio and r.seconds and r.reference and r.trace and r.values for r in found)
    assert {r.target for r in found} == {compiled().target.machine}


def test_winners_are_compiled(records: Path, tmp_path: Path) -> None:
    def winning(r: Record) -> Record:
        return replace(r, kind="verdict", wins=True, ratio=0.5)

    best = tmp_path / "r.jsonl"
    write_records([winning(r) for r in read_records(records) if r.kind == "trial"], best)
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    plain = compiled()
    with tw.tune.apply_best(best):
        tuned = compiled()
    assert tuned._program.objects[1:] != plain._program.objects[1:]
    np.testing.assert_allclose(tuned.run([x])[0], tw.compile(network()).run([x])[0], rtol=1e-4)


def test_what_is_known_is_not_measured_again(bundle: Path, records: Path) -> None:
    before = records.read_bytes()
    outcomes = measure_bundle(bundle, records)
    assert [o.trials for o in outcomes] == [0]
    assert records.read_bytes().startswith(before)


def test_kernels_that_were_measured_are_not_built_again(records: Path, tmp_path: Path) -> None:
    with pytest.raises(tw.UserError, match="no kernel is left"):
        tw.tune.bundle(network(), TARGET, tmp_path / "b.zip", records=records)


def test_winners_are_timed_inside_the_model(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def compared(self: TrialModel, candidate: bytes, seconds: float) -> Measured:
        asked.append(seconds)
        return Measured((0.7,) * 5, 1.0, 2.0)

    path, model = tmp_path / "r.jsonl", tmp_path / "m.twm"
    compiled().save(model)
    tw.tune.measure(bundle, path, model=model)
    (trial,) = (r for r in read_records(path) if r.kind == "trial")
    monkeypatch.setattr(TrialModel, "compared", compared)
    # By the trial, it is worth a second look.
    write_records([replace(trial, ratio=0.5)], path)
    (outcome,) = tw.tune.measure(bundle, path, model=model)
    (verdict,) = (r for r in read_records(path) if r.kind == "verdict")
    assert verdict.task == trial.task and verdict.wins and verdict.ratio == outcome.ratio == 0.7
    assert asked == [outcome.seconds]


def test_a_kernel_is_exchanged_in_a_model(bundle: Path) -> None:
    model = compiled()
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    (name,) = model.kernels
    within = TrialModel(model, [x])
    assert within.has(name) and not within.has("another")
    with Bundle(bundle) as opened:
        (task,) = opened.tasks()
        ((digest, _),) = task.candidates
        code = opened.kernel(digest)
    other = within.with_kernel(PackedKernel.unpacked(code))
    assert other.program.objects[0] == model.program.objects[0]
    assert other.program.objects[1] == PackedKernel.unpacked(code).code
    np.testing.assert_allclose(other.run([x])[0], model.run([x])[0], rtol=1e-5)
    found = within.compared(code, within.seconds)
    assert not found.failure and found.ratio > 0 and found.seconds > 0
    with pytest.raises(tw.UserError, match="has no kernel"):
        within.with_kernel(replace(PackedKernel.unpacked(code), name="another"))


@pytest.mark.parametrize(("bytes_of_model", "calls"), [(1 << 20, 1), (1 << 30, 128)])
def test_constants_of_large_models_are_read_from_memory(bytes_of_model: int, calls: int) -> None:
    (task,) = counted_tasks(compiled(), {})
    cuda = replace(task, target=tw.Target.of("cuda -arch=sm_90a"), model_bytes=bytes_of_model)
    asked = replace(trial_task(cuda), pool=b"")
    assert TrialTask.unpacked(asked.packed()) == asked and asked.constants == (1,)
    assert constant_copies(asked, made_up_arguments(asked)) == calls


def test_calls_on_a_device_share_all_but_copies() -> None:
    (task,) = counted_tasks(compiled(), {})
    builder = KernelBuilder(task.target)
    (built,) = builder.built(task, [None])
    builder.close()
    asked = trial_task(task)
    device, own = device_for(asked.target.kind), made_up_arguments(asked)
    alone = KernelAlone(PackedKernel.unpacked(built.kernel), asked.signature, None, device)
    for call in (calls := alone.rotating(own, asked.constants, 3)):
        call()
    placed = [call.__defaults__[0][1] for call in calls]  # type: ignore[attr-defined]
    x, c, y = zip(*([a.address for a in arrays] for arrays in placed), strict=True)
    assert len(set(x)) == len(set(y)) == 1 and len(set(c)) == 3
    assert all((arrays[1].numpy() == own[1]).all() for arrays in placed)


def test_time_ends_a_measurement(bundle: Path, tmp_path: Path) -> None:
    assert measure_bundle(bundle, tmp_path / "r.jsonl", seconds=0.0) == []


def test_kernels_are_counted_in_the_program() -> None:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "f32", ("n", 32))
    for _ in range(3):
        x = b.relu(b.matmul(x, rng.standard_normal((32, 32)).astype(np.float32)))
    b.output(x)
    model = tw.compile(b.build(), "cuda -arch=sm_90a")
    assert isinstance(model, tw.Model)
    (task,) = counted_tasks(model, {"n": 7})
    assert task.calls == 3 and task.numbers == (7,) and task.seconds > 0
    assert task.flops >= 2 * 7 * 32 * 32


def test_candidates_are_different_loops() -> None:
    (task, *_) = counted_tasks(compiled(), {})
    space = rule_space(task.function, task.target)
    texts = [p.text for p in points_of(space, 20, Random(0))]
    assert len(set(texts)) == len(texts) > 1 and space.default.text not in texts


def test_a_gpu_that_is_not_here_is_refused(tmp_path: Path) -> None:
    from tilewright.runtime import why_no_device

    target = "cuda -arch=sm_90a"
    if not why_no_device(target):
        pytest.skip("there is one")
    with pytest.raises(tw.UserError, match="write a bundle that is measured there"):
        tw.tune(network(), target, records=tmp_path / "r.jsonl")
    tw.tune.bundle(network(), target, tmp_path / "b.zip", trials=1)
    with pytest.raises(tw.UserError, match="cannot be measured here: it is for an NVIDIA GPU"):
        tw.tune.measure(tmp_path / "b.zip", tmp_path / "r.jsonl")
    assert not (tmp_path / "r.jsonl").exists()


# ---- damaged files ------------------------------------------------------------------------------


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with pytest.raises(tw.UserError, match="cannot read"):
        tw.tune.measure(path)
    path.write_bytes(b"PK no file of ours")
    with pytest.raises(tw.UserError, match="cannot read"):
        tw.tune.measure(path)
    for text in ("[]", "{}", '{"format": "tilewright bundle 1", "tasks": [], "target": 3}', "{"):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("bundle.json", text)
        with pytest.raises(tw.UserError, match="is no bundle of candidates"):
            tw.tune.measure(path, tmp_path / "r.jsonl")


def test_changed_code_is_refused(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data + b"!" if name.startswith("kernels/") else data)
    with pytest.raises(tw.UserError, match="the code of a kernel was changed"):
        tw.tune.measure(path, tmp_path / "r.jsonl")


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_never_ends_in_a_fault(bundle: Path, tmp_path: Path, seed: int) -> None:
    rng, path = Random(seed), tmp_path / "b.zip"
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = bytearray(old.read(name))
            if not name.startswith("kernels/"):
                for _ in range(4):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            new.writestr(name, bytes(data))
    with contextlib.suppress(tw.UserError):
        measure_bundle(path, tmp_path / "r.jsonl", seconds=1.0)
