"""The cases that the ONNX project ships inside its package, as plain data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


class Case(NamedTuple):
    """A model, and inputs with the outputs that they should give."""

    name: str
    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


@cache
def load_cases(kind: str) -> list[Case]:
    """All cases of a kind; they are made anew in each process, which takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [_case(c) for c in load_model_tests(kind=kind)]


def _case(source: Any) -> Case:
    model = source.model or onnx.load(str(Path(source.model_dir) / "model.onnx"))
    data = [_plain(list(s)) for s in source.data_sets or _read_data(Path(source.model_dir))]
    # The tolerances that all runtimes were measured with.
    return Case(source.name, model, data, max(source.rtol, 1e-3), max(source.atol, 1e-5))


def _read_data(folder: Path) -> list[tuple[list[Any], list[Any]]]:
    folders = sorted(folder.glob("test_data_set*"))
    return [(_tensors(f, "input"), _tensors(f, "output")) for f in folders]


def _tensors(folder: Path, prefix: str) -> list[Any]:
    files = sorted(folder.glob(f"{prefix}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))
    return [onnx.load_tensor(str(p)) for p in files]


def _plain(value: Any) -> Any:
    """Arrays, or lists of them, whatever the data set keeps them in."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None else np.asarray(value)


def is_close(got: Any, want: Any, rtol: float, atol: float) -> bool:
    """Whether a result is right: same structure, shape, element type, and near enough."""
    if isinstance(want, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(got) == len(want)
            and all(is_close(g, w, rtol, atol) for g, w in zip(got, want, strict=True))
        )
    if want is None or got is None:
        return want is got
    got, want = np.asarray(got), np.asarray(want)
    if not has_same_type(got, want):
        return False
    if want.dtype.kind in "OUSb":
        return bool((got == want).all())
    return np.allclose(_wide(got), _wide(want), rtol=rtol, atol=atol, equal_nan=True)


def has_same_type(got: Any, want: Any) -> bool:
    """Whether arrays agree in shape and element type."""
    texts = "OUS"
    same = got.dtype == want.dtype or (got.dtype.kind in texts and want.dtype.kind in texts)
    return got.shape == want.shape and same


def _wide(array: Any) -> Any:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def chunk(cases: Sequence[Case], index: int, count: int) -> Sequence[Case]:
    """Every `count`-th case, so that chunks take about the same time."""
    return cases[index::count]
