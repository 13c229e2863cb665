"""Archives: pickles are refused, and nothing in an archive is run."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch import seeds  # noqa: E402
from tests.frontends.torch.nets import require_close  # noqa: E402
from tilewright.frontends.sources import Source, front_end_of  # noqa: E402


@pytest.fixture(scope="module")
def archive() -> bytes:
    return seeds.archive("linear")


def edited(archive: bytes, name: str, edit: Callable[[bytes], bytes]) -> bytes:
    """The archive with one record changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(made, "w") as new:
        for record in old.namelist():
            data = old.read(record)
            new.writestr(record, edit(data) if record.endswith(name) else data)
    return made.getvalue()


def of_program(edit: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        program = json.loads(data)
        edit(program)
        return json.dumps(program).encode()

    return changed


def nodes(program: Any) -> Any:
    return program["graph_module"]["graph"]["nodes"]


def test_an_archive_is_recognised_by_what_is_in_it(archive: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(archive)
    assert front_end_of(Source(path)).name == "PyTorch"
    assert front_end_of(Source(archive)).name == "PyTorch"
    x = torch.randn(5, 4)
    wanted = torch.export.load(io.BytesIO(archive)).module()(x)
    with torch.no_grad():
        require_close(tw.compile(path).run([x]), wanted.detach())


def test_pickles_are_refused(tmp_path: Path) -> None:
    for name, legacy in (("net.pt", True), ("net.pth", False)):
        path = tmp_path / name
        torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=legacy)
        with pytest.raises(tw.UserError, match="it is a pickle") as error:
            tw.compile(path)
        assert "torch.export.save" in error.value.remedy


def test_functions_that_are_no_operators_are_refused(archive: bytes) -> None:
    for target in ("torch.os.system", "torch.load", "_operator.methodcaller", "torch.hub.load"):

        def edit(program: Any, target: str = target) -> None:
            nodes(program)[-1]["target"] = target

        with pytest.raises(tw.UserError, match="that is no operator"):
            tw.compile(edited(archive, "models/model.json", of_program(edit)))


def test_sizes_that_are_no_expressions_are_refused(archive: bytes) -> None:
    evil = "__import__('os').system('false')"

    def edit(program: Any) -> None:
        text = json.dumps(program)
        assert '"expr_str": "' in text
        head, _, tail = text.partition('"expr_str": "')
        program.clear()
        program.update(json.loads(head + '"expr_str": "' + evil + tail[tail.index('"') :]))

    with pytest.raises(tw.UserError, match="it is no expression"):
        tw.compile(edited(archive, "models/model.json", of_program(edit)))


def test_pickled_weights_are_refused(archive: bytes) -> None:
    def edit(config: Any) -> None:
        config["config"]["linear.weight"]["use_pickle"] = True

    with pytest.raises(tw.UserError, match=r"linear\.weight is pickled"):
        tw.compile(edited(archive, "model_weights_config.json", of_program(edit)))


def test_sample_inputs_are_not_read(archive: bytes) -> None:
    tw.compile(edited(archive, "sample_inputs/model.pt", lambda _: b"\x80\x04cos\nsystem\n"))


def test_weights_stay_inside_their_bytes(archive: bytes) -> None:
    def edit(config: Any) -> None:
        config["config"]["linear.weight"]["tensor_meta"]["strides"][0]["as_int"] = 1000

    with pytest.raises(tw.UserError, match="beyond its bytes"):
        tw.compile(edited(archive, "model_weights_config.json", of_program(edit)))


def test_weights_of_half_an_element_are_refused(archive: bytes) -> None:
    with pytest.raises(tw.UserError, match="no whole number of elements"):
        tw.compile(edited(archive, "data/weights/weight_0", lambda data: data[:-1]))


def test_a_list_of_weights_that_is_none_is_refused(archive: bytes) -> None:
    def edit(config: Any) -> None:
        config["config"] = 7

    with pytest.raises(tw.UserError, match="is damaged"):
        tw.compile(edited(archive, "model_weights_config.json", of_program(edit)))


def test_damaged_archives_end_in_a_message(archive: bytes) -> None:
    for cut in (40, len(archive) // 2, len(archive) - 40):
        with pytest.raises(tw.UserError):
            tw.compile(archive[:cut])
    for at in range(0, len(archive), len(archive) // 12):
        changed = bytearray(archive)
        changed[at] ^= 0x55
        with contextlib.suppress(tw.UserError):
            tw.compile(bytes(changed))
