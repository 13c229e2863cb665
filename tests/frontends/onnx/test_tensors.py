"""Tensors in model files: all element types, both ways to store them, sparse, in other files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.models import info, make, node
from tilewright.frontends import from_onnx
from tilewright.frontends.onnx.element_types import element_type, onnx_number
from tilewright.frontends.onnx.external import ExternalFiles
from tilewright.frontends.onnx.tensors import read_sparse, read_tensor
from tilewright.support.errors import UserError

NO_FILES = ExternalFiles(None)
NUMBERS = [k for k in range(1, 27) if k not in (8, 14, 15)]


def values(number: int) -> Any:
    """A few numbers that every element type has, in an odd count."""
    dtype = element_type(number, "x").numpy
    if dtype == np.bool_:
        return np.array([[True, False, True]])
    numbers = {21: [0, 15, 1], 22: [-8, 7, 1], 25: [0, 3, 1], 26: [-2, 1, 0]}
    return np.array(
        [numbers.get(number, [1.0, 2.0, 0.5 if dtype.kind not in "iu" else 3.0])]
    ).astype(dtype)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("raw", [False, True])
def test_every_element_type(number: int, raw: bool) -> None:
    want = values(number)
    if raw:
        proto = onnx.numpy_helper.from_array(want, "x")
        assert proto.HasField("raw_data")
    else:
        plain = want.astype(np.float32) if want.dtype.kind not in "iub" else want
        proto = helper.make_tensor("x", number, want.shape, plain.ravel().tolist())
        assert not proto.HasField("raw_data")
    assert proto.data_type == number
    got, dtype = read_tensor(proto, NO_FILES)
    assert got.dtype == want.dtype
    assert onnx_number(dtype) == number
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_strings_and_empty_tensors() -> None:
    proto = helper.make_tensor("s", TensorProto.STRING, [2], ["a", "bé"])  # type: ignore[arg-type]
    assert read_tensor(proto, NO_FILES)[0].tolist() == ["a", "bé"]
    empty = helper.make_tensor("e", TensorProto.FLOAT, [0, 3], [])
    assert read_tensor(empty, NO_FILES)[0].shape == (0, 3)
    scalar = helper.make_tensor("c", TensorProto.INT64, [], [5])
    assert read_tensor(scalar, NO_FILES)[0].shape == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": [2**40, 2**40]}, "no memory can hold that"),
        ({"dims": [5]}, "x has 8 bytes of data: its type and shape take 20"),
        ({"dims": [-2]}, r"x has the shape \[-2\]"),
        ({"data_type": 14}, "has the element type complex64"),
        ({"data_type": 77}, "has the element type 77"),
        ({"raw_data": b"abc"}, "x has 3 bytes of data"),
    ],
)
def test_damaged_tensors(change: dict, message: str) -> None:
    proto = onnx.numpy_helper.from_array(np.ones(2, np.float32), "x")
    for field, value in change.items():
        if field == "dims":
            del proto.dims[:]
            proto.dims.extend(value)
        else:
            setattr(proto, field, value)
    with pytest.raises(UserError, match=message):
        read_tensor(proto, NO_FILES)


# ---- sparse -------------------------------------------------------------------------------------


def floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def sparse(elements: Any, indices: Any, dims: list[int]) -> Any:
    parts = {"w": elements, "": indices}
    first, second = (onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in parts.items())
    return helper.make_sparse_tensor(first, second, dims)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_become_dense(indices: list) -> None:
    got, _ = read_sparse(sparse(floats(7, 8), np.array(indices), [2, 3]), NO_FILES)
    np.testing.assert_array_equal(got, [[0, 7, 0], [0, 0, 8]])


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([1, 6], [2, 3], "indices that do not fit"),
        ([-1, 0], [2, 3], "indices that do not fit"),
        ([1, 2, 3], [2, 3], "indices that do not fit"),
        ([0, 1], [1 << 20, 1 << 20], "sparse tensors become dense, up to"),
    ],
)
def test_damaged_sparse_tensors(indices: list, dims: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_sparse(sparse(floats(7, 8), np.array(indices), dims), NO_FILES)


def test_sparse_weights_of_a_model() -> None:
    model = make([node("Add", ["x", "w"])], [info("x", shape=[3])], ["y"])
    model.graph.sparse_initializer.append(sparse(floats(4), np.array([1]), [3]))
    module = from_onnx(model)
    assert module.main.body[0].expr.args[1].constant.tolist() == [0, 4, 0]  # type: ignore[union-attr]


# ---- external data ------------------------------------------------------------------------------


def external(folder: Path, **entries: Any) -> Path:
    """A model of `x + w` whose weights lie in the file `w.bin`."""
    weights = np.arange(6, dtype=np.float32)
    (folder / "w.bin").write_bytes(b"\0" * 8 + weights.tobytes())
    model = make([node("Add", ["x", "w"])], [info("x", shape=[6])], ["y"])
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type = "w", TensorProto.FLOAT
    tensor.dims.append(6)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "offset": 8, "length": 24, **entries}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    onnx.save(model, str(path))
    return path


def weight_of(path: Path) -> Any:
    return from_onnx(path).main.body[0].expr.args[1].constant  # type: ignore[union-attr]


def test_weights_in_a_file_are_mapped(tmp_path: Path) -> None:
    weight = weight_of(external(tmp_path))
    np.testing.assert_array_equal(weight, np.arange(6))
    assert not weight.flags.owndata
    assert not weight.flags.writeable


def test_unaligned_weights(tmp_path: Path) -> None:
    path = external(tmp_path, offset=9)
    (tmp_path / "w.bin").write_bytes(b"\0" * 9 + np.arange(6, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(weight_of(path), np.arange(6))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../w.bin"}, "outside the model's folder"),
        ({"location": "/etc/hostname"}, "outside the model's folder"),
        ({"location": "link.bin"}, "outside the model's folder"),
        ({"location": ""}, "without a file name"),
        ({"location": "none.bin"}, "No such file"),
        ({"location": "."}, "no plain file"),
        ({"location": "pipe"}, "no plain file"),
        ({"offset": 12}, "the file has 32"),
        ({"offset": -8}, "with the offset '-8'"),
        ({"offset": 10**30}, "with the offset"),
        ({"length": 20}, "its type and shape take 24"),
        ({"length": "many"}, "with the length 'many'"),
    ],
)
def test_external_data_that_cannot_be_meant(
    tmp_path: Path, entries: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(32))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    os.mkfifo(folder / "pipe")
    path = external(folder, **entries)
    with pytest.raises(UserError, match=message):
        from_onnx(path)


def test_external_data_without_a_folder(tmp_path: Path) -> None:
    data = external(tmp_path).read_bytes()
    with pytest.raises(UserError, match="pass the path of the model"):
        from_onnx(data)


def test_packed_weights_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes([0x21, 0x0F]))
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[3], data_location="EXTERNAL")
    tensor.external_data.add(key="location", value="w.bin")
    got, _ = read_tensor(tensor, ExternalFiles(tmp_path))
    np.testing.assert_array_equal(got, np.array([1, 2, -1], ml_dtypes.int4))
