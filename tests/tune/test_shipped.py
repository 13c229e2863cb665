"""Records that come with the package: for the machine that they were measured on, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.tune.test_bundle import network as product
from tests.tune.test_records import record
from tests.tune.test_variants import network
from tilewright import shipped
from tilewright.graph import PassContext
from tilewright.kernels.compiled import loops_key
from tilewright.schedule import Recorded, Trace, Tuned
from tilewright.shipped import FOLDER, shipped_for, shipped_path
from tilewright.tune import Record, add_shipped, apply_best, read_records, write_records
from tilewright.tune.api import _compiled as tune_compiled
from tilewright.tune.counted import counted_tasks
from tilewright.tune.records.best import DECISIONS
from tilewright.tune.spaces.rules import rule_space

HERE = tw.Target.of("llvm").machine
VERSIONS = {"tilewright": tw.__version__}


def compiled() -> tw.Model:
    model = tw.compile(network())
    assert isinstance(model, tw.Model)
    return model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the package's own."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    monkeypatch.delenv("TILEWRIGHT_SHIPPED_RECORDS", raising=False)
    return tmp_path


def decision(target: str = HERE, **fields: object) -> Record:
    """A record by which the convolution of the network is computed directly."""
    (made,) = (d for d in compiled().decisions if d.made_by == "winograd")
    other = next(o for o in made.others if o != made.default)
    own = record(made.key, target=target, trace=None, space=DECISIONS, values={"winograd": other})
    return replace(own, versions=VERSIONS, **fields)  # type: ignore[arg-type]


def taken(model: tw.Model) -> dict[str, str]:
    return {d.key: d.taken for d in model.decisions if d.taken != d.default}


def test_what_matches_this_machine_is_applied(folder: Path) -> None:
    own = decision()
    assert add_shipped([own]) == [shipped_path(HERE)]
    assert taken(compiled()) == {own.task: own.values["winograd"]}


def test_schedules_are_applied_as_well(folder: Path) -> None:
    model = compiled()
    plain = {n: loops_key(model.ir(n)) for n in model.kernels}
    name, key = next(iter(plain.items()))
    add_shipped([record(key, target=HERE, trace=Trace().to_json(), versions=VERSIONS)])
    assert shipped_for(HERE).schedulers == {key: Tuned(Trace()).key}
    with PassContext(options={"shipped_records": False}):
        default = compiled()
    made = compiled()
    assert name in made.kernels and made.program.objects != default.program.objects
    with PassContext(schedulers={HERE: {key: Recorded(Trace()).key}}):
        assert compiled().program.objects == made.program.objects


def test_what_is_of_another_machine_or_version_is_not(folder: Path) -> None:
    add_shipped([decision("llvm -mcpu=znver4")])
    assert not taken(compiled())
    write_records([decision("llvm -mcpu=znver4")], shipped_path(HERE))
    assert not taken(compiled()), "whatever its file is called"
    older = replace(decision(), versions={"tilewright": "0.0.1"})
    write_records([older], shipped_path(HERE))
    assert not taken(compiled()), "it was compared with another default"


def test_records_of_a_gpu_hold_beside_any_processor(folder: Path) -> None:
    def made(processor: str) -> tw.Model:
        model = tw.compile(product(), f"cuda -arch=sm_90a -mcpu={processor}")
        assert isinstance(model, tw.Model)
        return model

    (task,) = counted_tasks(made("haswell"), {})
    trace = rule_space(task.function, task.target).default.trace.to_json()
    own = record(task.key, target=task.target.machine, trace=trace, versions=VERSIONS)
    assert add_shipped([own]) == [shipped_path("cuda -arch=sm_90a")]
    for processor in ("haswell", "neoverse-n1"):
        assert made(processor).schedulers == {task.name: Tuned(Trace.from_json(trace)).key}


def test_it_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_shipped([decision()])
    with PassContext(options={"shipped_records": False}):
        assert not taken(compiled())
    monkeypatch.setenv("TILEWRIGHT_SHIPPED_RECORDS", "0")
    assert not taken(compiled())


def test_records_of_the_user_come_first(folder: Path, tmp_path: Path) -> None:
    own = decision()
    add_shipped([own])
    (made,) = (d for d in compiled().decisions if d.key == own.task)
    given = replace(own, values={"winograd": made.default})
    write_records([given], tmp_path / "mine.jsonl")
    with apply_best(tmp_path / "mine.jsonl"):
        assert not taken(compiled())


def test_only_what_wins_by_a_margin_is_kept(folder: Path) -> None:
    slight, better = decision(ratio=0.98), replace(decision(), task="b", ratio=0.7)
    add_shipped([slight, better, replace(better, ratio=0.6), record("c", wins=False)])
    (kept,) = read_records(shipped_path(HERE))
    assert (kept.task, kept.ratio, kept.features, kept.sample) == ("b", 0.6, (), {})
    add_shipped([replace(better, task="d")])
    assert [r.task for r in read_records(shipped_path(HERE))] == ["b", "d"]


def test_searches_compare_with_what_the_rules_make(folder: Path) -> None:
    add_shipped([decision()])
    model = tune_compiled(network(), tw.Target.of("llvm"), None, {})
    assert isinstance(model, tw.Model) and not taken(model)


def test_files_of_the_package_are_sound() -> None:
    for path in FOLDER.glob("*.jsonl"):
        records = read_records(path)
        targets = {r.target for r in records}
        assert len(targets) == 1 and path == shipped_path(targets.pop())
        assert all(r.wins and r.ratio and r.ratio <= 0.97 for r in records)
        assert len({r.task for r in records}) == len(records)
        assert path.stat().st_size < 1 << 20
