"""What models can be read from, and what is refused before any node is converted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node, results
from tilewright.frontends import from_onnx
from tilewright.support.errors import UserError

X = np.array([-1.0, 2.0], np.float32)


def relu() -> onnx.ModelProto:
    return make([node("Relu", ["x"])], [info("x", shape=["n"])], ["y"])


def test_from_a_path_from_bytes_and_from_a_proto(tmp_path: Path) -> None:
    model = relu()
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))
    for source in (path, str(path), model, model.SerializeToString(), bytearray(path.read_bytes())):
        module = tw.frontends.from_onnx(source)
        (got,) = tw.graph.evaluate(module, {"x": X})
        np.testing.assert_array_equal(got, [0, 2])


def test_the_package_is_optional_and_loaded_late() -> None:
    script = (
        "import sys, tilewright.frontends as f\n"
        "assert 'onnx' not in sys.modules\n"
        "sys.modules['onnx'] = None\n"
        "try:\n    f.from_onnx(b'')\n"
        "except Exception as e:\n    print(type(e).__name__, e)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("UserError cannot read an ONNX model")
    assert "pip install tilewright[onnx]" in run.stdout


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "it has no graph"),
        (b"hello, world", "it does not parse"),
        ("missing.onnx", "cannot read missing.onnx: No such file"),
        (3, "from int\n  remedy: pass a path, bytes or an onnx.ModelProto"),
    ],
)
def test_what_is_no_model(source: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_onnx(source)
    assert message in str(caught.value)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    data = relu().SerializeToString()
    path = tmp_path / "short.onnx"
    path.write_bytes(data[:-7])
    with pytest.raises(UserError, match=r"short.onnx is no ONNX model: it does not parse"):
        from_onnx(path)


@pytest.mark.parametrize("version", [0, 29, 10**6])
def test_versions_that_nobody_knows(version: int) -> None:
    model = relu()
    model.opset_import[0].version = version
    with pytest.raises(UserError, match=rf"uses version {version} .*: versions 1 to 28 are known"):
        from_onnx(model)


def test_the_newest_version_is_that_of_the_package() -> None:
    from tilewright.frontends.onnx.load import NEWEST

    for domain in ("", "ai.onnx.ml", "ai.onnx.preview.training"):
        assert NEWEST[domain] >= onnx.helper.VERSION_TABLE[-1][2] or domain
    assert NEWEST[""] == onnx.defs.onnx_opset_version()


# ---- inputs -------------------------------------------------------------------------------------


def test_dimensions_get_their_names_and_numbers() -> None:
    model = make(
        [node("Concat", ["x", "z"], axis=1)],
        [info("x", shape=["n", 3]), info("z", shape=["n", "m"])],
        ["y"],
    )
    main = from_onnx(model).main
    assert [str(p.type) for p in main.params] == ["f32[n, 3]", "f32[n, m]"]
    assert str(main.results[0].type) == "f32[n, m + 3]"


def test_dimensions_without_names_are_independent() -> None:
    model = make([node("Identity", ["x"])], [info("x", shape=["?", None, "?"])], ["y"])
    shape = from_onnx(model).main.params[0].shape
    assert len(set(shape)) == 3


def test_shapes_refine_inputs() -> None:
    main = from_onnx(relu(), shapes={"x": (4,)}).main
    assert str(main.results[0].type) == "f32[4]"
    main = from_onnx(relu(), shapes={"x": ("batch",)}).main
    assert str(main.results[0].type) == "f32[batch]"


def test_a_name_frees_a_dimension_that_the_file_fixes() -> None:
    model = make([node("Relu", ["x"])], [info("x", shape=[1, 3])], ["y"])
    assert str(from_onnx(model, shapes={"x": ("n", None)}).main.results[0].type) == "f32[n, 3]"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "the model has no such input"),
        ({"x": (1, 2)}, "the model declares 1 dimensions"),
        ({"x": (-3,)}, "has a dimension of -3"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_onnx(relu(), shapes=shapes)


def test_an_input_of_unknown_rank_is_asked_for() -> None:
    model = make([node("Relu", ["x"])], [info("x", shape=None)], ["y"])
    with pytest.raises(tw.frontends.UnspecialisedError) as caught:
        from_onnx(model)
    assert caught.value.shapes == ("x",)
    assert str(from_onnx(model, shapes={"x": (2, "n")}).main.results[0].type) == "f32[2, n]"


def test_inputs_with_a_constant_are_weights() -> None:
    model = make(
        [node("Add", ["x", "w"])],
        [info("x", shape=[2]), info("w", shape=[2])],
        ["y"],
        {"w": np.ones(2, np.float32)},
    )
    assert [p.name for p in from_onnx(model).main.params] == ["x"]
    np.testing.assert_array_equal(results(model, X)[0], [0, 3])


def test_names_in_the_file_name_the_values() -> None:
    module = from_onnx(relu())
    assert module.main.params[0].name == "x"
    assert module.main.results[0].name == "y"
    assert module.main.body[0].origin == "node of y (Relu)"
