"""Artifacts: what is saved runs the same when it is loaded; what is damaged is refused."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random as chance
import resource
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.networks import mlp, positive, random
from tilewright.graph import ANY, Builder, OptionalType, SequenceType, TensorType, UnknownType
from tilewright.models.artifact import describe
from tilewright.runtime.artifact import container
from tilewright.support.errors import UserError
from tilewright.target import Target, why_not_here

X = random(5, 24, seed=7)
FOREIGN = {"x86_64": "aarch64", "aarch64": "x86_64"}.get(Target.of("llvm").arch, "x86_64")
FOREIGN_TARGET = f"llvm -mtriple={FOREIGN}-unknown-linux-gnu"


def load(path: Path, **options: Any) -> Any:
    return tw.load(path, **options)


def compiled(source: Any, **options: Any) -> Any:
    return tw.compile(source, **options)


@pytest.fixture(scope="module")
def model() -> tw.Model:
    return compiled(mlp())


@pytest.fixture(scope="module")
def saved(model: tw.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "m.twm"
    model.save(path)
    return path


def same(a: list[Any], b: list[Any]) -> None:
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


# ---- round trips --------------------------------------------------------------------------------


def test_a_loaded_model_runs_as_the_saved_one_did(model: tw.Model, saved: Path) -> None:
    loaded = load(saved)
    assert loaded.inputs == model.inputs and loaded.outputs == model.outputs
    for rows in (1, 5):
        same(loaded.run([X[:rows]]), model.run([X[:rows]]))


def test_what_can_be_looked_at(model: tw.Model, saved: Path) -> None:
    loaded = load(saved)
    assert loaded.kernels == model.kernels and loaded.target == model.target
    for name in ("main", *model.kernels):
        assert str(loaded.ir(name)) == str(model.ir(name))
    assert loaded.texts["graph.txt"] == str(model.graph)
    with pytest.raises(UserError, match="no kernel nothing"):
        loaded.ir("nothing")
    assert "MB of constants, for llvm" in repr(loaded)


def test_a_loaded_model_is_saved_as_it_came(saved: Path, tmp_path: Path) -> None:
    load(saved).save(tmp_path / "again.twm")
    assert (tmp_path / "again.twm").read_bytes() == saved.read_bytes()


def test_outputs_of_sizes_that_only_the_data_tell(tmp_path: Path) -> None:
    compiled(positive()).save(tmp_path / "m.twm")
    (got,) = load(tmp_path / "m.twm").run([np.array([1, -1, 2], np.float32)])
    np.testing.assert_array_equal(got, [1, 2])


def listed() -> Builder:
    """A sequence with one item more, an optional as it is, and the length of the first."""
    b = Builder()
    n = b.dim("n")
    items = b.input("items", SequenceType(TensorType("f32", [ANY, n])))
    maybe = b.input("maybe", OptionalType(SequenceType(UnknownType("int8"))))
    x = b.input("x", "f32", (2, n))
    b.output(b.sequence_insert(items, b.relu(x)), maybe, b.sequence_length(items))
    return b


def test_sequences_and_optionals(tmp_path: Path) -> None:
    model = compiled(listed().build())
    model.save(tmp_path / "m.twm")
    loaded = load(tmp_path / "m.twm")
    assert (loaded.inputs, loaded.outputs) == (model.inputs, model.outputs)
    items, x = [X, X[:2]], X[:2]
    for run in (model.run, loaded.run):
        longer, nothing, length = run([items, None, x])
        same([*longer, length], [X, X[:2], np.maximum(x, 0), np.array(2)])
        assert nothing is None
        same(run([[], [np.int8(7)], x])[1], [np.array(7, np.int8)])
    loaded.save(tmp_path / "again.twm")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: _model(m)["inputs"][0].update(kind="map"), "'map' is no kind of input"),
        (lambda m: _model(m)["inputs"][0].update(items=7), "items is no list"),
        (lambda m: _model(m).update(direct=[0, 2], records=[[1, 1]]), "is a list that is not in"),
    ],
)
def test_manifests_of_sequences_that_claim_what_is_not_so(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    compiled(listed().build()).save(tmp_path / "m.twm")
    _edited(tmp_path / "m.twm", tmp_path / "e.twm", edit)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "e.twm")


def test_parameters_are_mapped_and_aligned(saved: Path) -> None:
    arrays = load(saved)._constants
    assert all(a.ctypes.data % 64 == 0 and not a.flags.writeable for a in arrays)
    with zipfile.ZipFile(saved) as file:
        assert all(i.compress_type == zipfile.ZIP_STORED for i in file.infolist())
        assert file.testzip() is None


def test_the_file_may_go_while_the_model_runs(model: tw.Model, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.twm"
    shutil.copy(saved, path)
    loaded = load(path)
    model.save(path)
    path.unlink()
    same(loaded.run([X]), model.run([X]))


LOAD_WITHOUT_COMPILER = """
import sys

class Blocked:
    rooms = ("graph", "schedule", "lower", "codegen", "tensor", "frontends", "arith")
    def find_spec(self, name, path=None, target=None):
        if name.startswith(tuple(f"tilewright.{r}" for r in self.rooms)):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Blocked())
import numpy as np
import tilewright as tw
x = np.load(sys.argv[2])
np.save(sys.argv[3], tw.load(sys.argv[1]).run([x])[0])
"""


def test_loading_needs_no_compiler(model: tw.Model, saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    files = [saved, tmp_path / "x.npy", tmp_path / "y.npy"]
    subprocess.run([sys.executable, "-c", LOAD_WITHOUT_COMPILER, *map(str, files)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model.run([X])[0])


# ---- models that are not native as a whole ------------------------------------------------------


def test_programs_for_values_are_kept_as_far_as_they_were_seen(tmp_path: Path) -> None:
    proto = make(
        [node("ReduceSum", ["x", "axes"], keepdims=0)],
        [info("x", shape=["n", 4]), info("axes", "int64", [1])],
        ["y"],
    )
    model, x = compiled(proto), random(3, 4)
    with pytest.raises(UserError, match="has not been run: its programs depend on axes"):
        model.save(tmp_path / "m.twm")
    wanted = {axis: model.run([x, np.array([axis])])[0] for axis in (0, 1)}
    model.save(tmp_path / "m.twm")
    loaded = load(tmp_path / "m.twm")
    for axis, want in wanted.items():
        np.testing.assert_array_equal(loaded.run([x, np.array([axis])])[0], want)
    with pytest.raises(UserError, match=r"no program for axes = \[-1\] of shape \[1\]") as caught:
        loaded.run([x, np.array([-1])])
    assert "axes = [0] of shape [1]; axes = [1]" in str(caught.value)
    loaded.save(tmp_path / "again.twm")


def test_parts_that_python_runs_are_kept_as_a_graph(tmp_path: Path) -> None:
    words = np.array([f"w{k}" for k in range(12)], object)
    proto = make(
        [
            node("Add", ["x", "x"], ["twice"]),
            node("StringConcat", ["s", "words"], ["t"]),
        ],
        [info("x", shape=["n"]), info("s", "string", [12])],
        ["twice", "t"],
        {"words": words},
        opset=20,
    )
    with pytest.warns(UserWarning, match="run on the host"):
        model = compiled(proto)
    inputs = [random(3), words]
    model.save(tmp_path / "m.twm")
    loaded = load(tmp_path / "m.twm")
    assert loaded.hosted == model.hosted == {"string_concat": 1}
    same(loaded.run(inputs), model.run(inputs))
    loaded.save(tmp_path / "again.twm")


def test_models_are_not_pickled(model: tw.Model) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(UserError, match=r"remedy: model\.save\(path\)"):
            attempt(model)


# ---- several targets ----------------------------------------------------------------------------


def test_the_best_target_that_runs_here_is_taken(model: tw.Model, tmp_path: Path) -> None:
    here = Target.of("llvm")
    least = compiled(mlp(), target=f"llvm -mtriple={here.triple}")
    foreign = compiled(mlp(), target=FOREIGN_TARGET)
    path = tmp_path / "m.twm"
    tw.save([foreign, least, model], path)
    assert load(path).target == model.target
    assert load(path, target=str(least.target)).target == least.target
    same(load(path, target=str(least.target)).run([X[:1]]), least.run([X[:1]]))
    told = [b.why_not for b in describe(path).builds]
    assert told[0].startswith(f"it is for {FOREIGN}") and told[1:] == ["", ""]


def test_code_for_another_machine_can_be_made_and_kept(tmp_path: Path) -> None:
    foreign = compiled(mlp(), target=FOREIGN_TARGET)
    foreign.save(tmp_path / "m.twm")
    for attempt in (lambda: foreign.run([X]), lambda: foreign.set_threads(1)):
        with pytest.raises(UserError, match="main cannot run here: it is for"):
            attempt()
    with pytest.raises(UserError, match=r"on this machine: llvm .*: it is for"):
        load(tmp_path / "m.twm")
    with pytest.raises(UserError, match="holds nothing for riscv64"):
        load(tmp_path / "m.twm", target="riscv64")
    looked_at = load(tmp_path / "m.twm", target=FOREIGN)
    assert looked_at.target == foreign.target and looked_at.kernels == foreign.kernels


def test_features_that_this_machine_lacks() -> None:
    triple = Target.of("llvm").triple
    assert not why_not_here(triple, ())
    assert why_not_here(triple, ["flying"]) == "this machine lacks flying"
    assert why_not_here("unheard-of-triple", ()).startswith("it is for unheard-of-triple")
    other = triple.replace("linux-gnu", "windows-msvc")
    assert "windows" in why_not_here(other, ())


def test_only_one_model_goes_into_a_file(model: tw.Model, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two models for one target"):
        tw.save([model, model], tmp_path / "m.twm")
    with pytest.raises(UserError, match="different models as one"):
        tw.save([model, compiled(positive(), target=FOREIGN_TARGET)], tmp_path / "m.twm")
    with pytest.raises(UserError, match="no model to save"):
        tw.save([], tmp_path / "m.twm")
    assert not list(tmp_path.iterdir())


# ---- files that cannot be written or read -------------------------------------------------------


def test_what_cannot_be_written(model: tw.Model, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is a folder\n  remedy: name a file"):
        model.save(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        model.save(tmp_path / "none" / "m.twm")
    with pytest.raises(UserError, match="not a regular file"):
        model.save(os.devnull)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(model: tw.Model, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="Permission denied"):
        model.save(tmp_path / "m.twm")


@pytest.mark.parametrize("room", [0, 100, 9000, -10])
def test_a_full_disk_leaves_what_was_there(
    model: tw.Model, saved: Path, tmp_path: Path, room: int
) -> None:
    path = tmp_path / "m.twm"
    path.write_text("before")
    full = pytest.raises(UserError, match=r"cannot write .*m\.twm: File too large")
    with _room_on_disk(room % saved.stat().st_size), full:
        model.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.twm"]
    assert path.read_text() == "before"


@contextmanager
def _room_on_disk(size: int) -> Generator[None]:
    """Writes fail past `size` bytes of a file, as they do on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_interrupted_save_leaves_nothing(
    model: tw.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(container.ContainerWriter, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "m.twm")
    assert not list(tmp_path.iterdir())


def test_a_link_stays_a_link(model: tw.Model, tmp_path: Path) -> None:
    (tmp_path / "link.twm").symlink_to(tmp_path / "true.twm")
    model.save(tmp_path / "link.twm")
    assert (tmp_path / "link.twm").is_symlink() and (tmp_path / "true.twm").is_file()


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        load(tmp_path / "none.twm")
    with pytest.raises(UserError, match="it is a folder"):
        load(tmp_path)
    for content, reason in ((b"", "it is empty"), (b"\x89PNG" * 99, "it is no artifact")):
        (tmp_path / "m.twm").write_bytes(content)
        with pytest.raises(UserError, match=reason):
            load(tmp_path / "m.twm")


def test_a_zip_file_of_other_things(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.twm", "w") as file:
        file.writestr("hello.txt", "hello")
    with pytest.raises(UserError, match=r"not aligned|has no manifest\.json"):
        load(tmp_path / "m.twm")


# ---- damage -------------------------------------------------------------------------------------


def refused_or_right(path: Path, want: list[Any]) -> bool:
    """Whether a file is refused; if it is not, it must run as it should."""
    try:
        loaded = load(path)
    except UserError:
        return True
    same(loaded.run([X]), want)
    return False


def _places(data: bytes) -> list[int]:
    """Bytes of the container itself: headers, directory, manifest."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos, start = file.infolist(), file.start_dir
    places = list(range(start, len(data)))
    for member in infos:
        names = struct.unpack_from("<HH", data, member.header_offset + 26)
        head = member.header_offset + 30 + sum(names)
        size = member.file_size if member.filename == "manifest.json" else 0
        places += range(member.header_offset, head + size)
    return places


def test_bytes_that_change(model: tw.Model, saved: Path, tmp_path: Path) -> None:
    data, want, pick = saved.read_bytes(), model.run([X]), chance.Random(0)
    path, places = tmp_path / "m.twm", _places(saved.read_bytes())
    refused = 0
    for _ in range(2000):
        changed, at = bytearray(data), pick.choice(places)
        changed[at] ^= 1 << pick.randrange(8) if pick.random() < 0.5 else pick.randrange(1, 256)
        path.write_bytes(changed)
        refused += refused_or_right(path, want)
    assert 1000 < refused < 2000


def test_bytes_of_code_and_parameters_that_change(
    model: tw.Model, saved: Path, tmp_path: Path
) -> None:
    data, want, pick = saved.read_bytes(), model.run([X]), chance.Random(1)
    known = set(_places(data))
    inner = [k for k in range(len(data)) if k not in known]
    refused = 0
    for at in pick.sample(inner, 300):
        changed = bytearray(data)
        changed[at] ^= 1 << pick.randrange(8)
        (tmp_path / "m.twm").write_bytes(changed)
        refused += refused_or_right(tmp_path / "m.twm", want)
    # Nobody reads what lies between parameters, which begin at multiples of a line.
    assert refused >= 290


def test_files_that_are_cut_short(model: tw.Model, saved: Path, tmp_path: Path) -> None:
    data, want, pick = saved.read_bytes(), model.run([X]), chance.Random(2)
    for size in [*range(64), *(pick.randrange(len(data)) for _ in range(200))]:
        (tmp_path / "m.twm").write_bytes(data[:size])
        assert refused_or_right(tmp_path / "m.twm", want)


def _edited(saved: Path, path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """The artifact with another manifest, all checksums right."""
    with zipfile.ZipFile(saved) as old:
        members = {i.filename: old.read(i) for i in old.infolist()}
    manifest = json.loads(members["manifest.json"])
    edit(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    with container.ContainerWriter(path) as new:
        for name, data in members.items():
            new.add(name, [data], len(data))


def _model(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["builds"][0]["model"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(version=2), "format version 2, and this Tilewright reads up to 1"),
        (lambda m: m.update(version=-1), "version is -1"),
        (lambda m: m.update(format="other"), "no artifact of Tilewright's"),
        (lambda m: m.pop("builds"), "builds is missing"),
        (lambda m: m.update(builds=[]), "there is nothing in it"),
        (lambda m: m.update(builds=7), "builds is no list"),
        (lambda m: m["builds"][0].update(model=[]), r"builds\[0\].model is no dict"),
        (lambda m: _model(m).update(kind="magic"), "the kind 'magic' is not known"),
        (lambda m: _model(m).update(objects=["objects/none.o"]), "has no objects/none.o"),
        (lambda m: _model(m).update(objects=["params.bin"]), "other code than its name says"),
        (lambda m: _model(m)["constants"][0].update(offset=1), "does not lie in params.bin"),
        (lambda m: _model(m)["constants"][0].update(offset=1 << 40), "does not lie in params"),
        (lambda m: _model(m)["constants"][0].update(shape=[1 << 50]), "does not lie in params"),
        (lambda m: _model(m)["constants"][0].update(shape=[-1]), r"shape\[0\] is -1"),
        (lambda m: _model(m)["constants"][0].update(dtype="float33"), "float33"),
        (lambda m: _model(m).update(direct=[0, 5]), "not of every output"),
        (lambda m: _model(m).update(direct=[0], records=[[1, 99]]), "is not in the record"),
        (lambda m: _model(m).update(records=[1]), "1 is no pair"),
        (lambda m: _model(m).update(dims=["m"]), "no input determines the dimension m"),
        (lambda m: _model(m).update(messages=["{9}"]), "is no message"),
        (lambda m: _model(m)["inputs"][0].update(shape=[["pow", 1, 2]]), "is no dimension"),
        (lambda m: _model(m)["inputs"][0].update(shape=[[[], 1, 2]]), "is no dimension"),
        (lambda m: _model(m)["constants"].pop(), "what does not hold for its code"),
        (lambda m: _model(m)["constants"].reverse(), "what does not hold for its code"),
        (lambda m: _model(m)["inputs"][0].update(name="y"), "what does not hold for its code"),
        (lambda m: _model(m)["objects"].pop(), "what does not hold|does not define"),
        (lambda m: _model(m)["objects"].append(_model(m)["objects"][0]), "defines .* twice"),
        (lambda m: m["builds"][0].update(pool=_model(m)["objects"][0]), "does not define tw_pool"),
        (lambda m: _model(m)["texts"].update(x="texts/none"), "has no texts/none"),
        (lambda m: _model(m).update(dims="n"), "dims is no list"),
        (lambda m: _model(m).update(name=True), "name is no str"),
        (lambda m: _model(m).update(denormals="drop"), "'drop' is no way to treat denormals"),
    ],
)
def test_manifests_that_claim_what_is_not_so(
    saved: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    _edited(saved, tmp_path / "m.twm", edit)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "m.twm")


@pytest.mark.parametrize("name", ["../up", "/root", "a//b", "a\\b", ""])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with container.ContainerWriter(tmp_path / "m.twm") as file:
        file.add(name, [b"x"], 1)
    with pytest.raises(UserError, match="is not allowed"):
        load(tmp_path / "m.twm")


# ---- files of the past --------------------------------------------------------------------------


def test_files_of_version_1_stay_loadable() -> None:
    """`tests/golden/make_artifact.py` wrote the file, once."""
    path = Path(__file__).parent / "golden" / "v1.twm"
    builds = describe(path).builds
    assert [b.triple.split("-")[0] for b in builds] == ["x86_64", "aarch64"]
    x = (np.arange(18, dtype=np.float32) - 9).reshape(3, 6)
    w = (np.arange(24, dtype=np.float32) - 12).reshape(6, 4)
    want = np.maximum(x @ w + np.float32(0.5), 0)
    for build in builds:
        assert load(path, target=build.target).texts["graph.txt"]
        if not build.why_not:
            np.testing.assert_array_equal(load(path, target=build.target).run([x])[0], want)
    if any(not b.why_not for b in builds):
        np.testing.assert_array_equal(load(path).run([x])[0], want)
