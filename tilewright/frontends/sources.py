"""Chooses the front end for a model by its type or its content."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tilewright.graph import Module
from tilewright.support.collector import collecting_rarely
from tilewright.support.errors import UserError, nearest

#: The folders of all front ends, in the order in which they are tried. A folder's façade has a
#: `FRONT_END` and imports nothing of its framework. ONNX is last: its files have no signature.
_FOLDERS: Final = (
    "torch",
    "tflite",
    "tensorflow",
    "keras",
    "caffe",
    "darknet",
    "mxnet",
    "onnx",
)

#: Larger models in memory are not kept just in case they are read again.
_KEPT: Final = 32 << 20
#: How much of a file a front end may read to recognise it.
_HEAD: Final = 4096

Shapes = Mapping[str, Sequence[Any]]


def is_bytes(given: Any) -> bool:
    """Whether a model is given as the bytes of its file."""
    return isinstance(given, bytes | bytearray | memoryview)


@dataclass
class Source:
    """A model as the user gave it: an object, bytes, a file or a folder."""

    given: Any
    #: Weights in a file of their own.
    params: Any = None
    #: Example inputs, for tracing.
    inputs: Any = None

    def __post_init__(self) -> None:
        # The process may be in another folder when the file is read again.
        self._place = None if self.path is None else os.path.abspath(self.path)
        self._stamp = _stamp(self._place)

    @cached_property
    def path(self) -> Path | None:
        """The path, if it is a file or a folder."""
        given: Any = self.given
        return Path(os.fspath(given)) if isinstance(given, str | os.PathLike) else None

    @cached_property
    def head(self) -> bytes:
        """The beginning of a file, or of bytes; empty if there is none."""
        if is_bytes(self.given):
            return bytes(memoryview(self.given)[:_HEAD])
        try:
            if self.path is None or not self.path.is_file():
                return b""
            with self.path.open("rb") as file:
                return file.read(_HEAD)
        except (OSError, ValueError):
            return b""

    @property
    def is_cheap(self) -> bool:
        """Whether keeping it for another read takes little memory."""
        if is_bytes(self.given):
            return len(self.given) <= _KEPT
        return not hasattr(self.given, "ByteSize") or self.given.ByteSize() <= _KEPT

    def again(self) -> Source:
        """The same model, for another read; its file must not have changed."""
        if self._place is None:
            return self
        if _stamp(self._place) != self._stamp:
            raise UserError(
                f"cannot read {self._place} again",
                reason="the file was changed or removed after the model was compiled from it",
                remedy="compile the model anew",
            )
        return Source(self._place, self.params, self.inputs)

    @property
    def name(self) -> str:
        """The name in messages."""
        return str(self.path) if self.path is not None else "the model"


def _stamp(path: str | None) -> tuple[int, ...]:
    """Numbers that change with a file; empty where there is none, which readers report."""
    try:
        found = os.stat(path or "")
    except (OSError, ValueError):
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class FrontEnd:
    """How models of one framework are converted to graphs."""

    name: str
    recognises: Callable[[Source], bool]
    #: The graph of a model, with the given shapes of inputs, specialised for the given values.
    convert: Callable[[Source, Shapes, Mapping[str, Any]], Module]
    input_names: Callable[[Source], list[str]]


def operators_of(folder: str) -> list[tuple[str, str]]:
    """The operators that a front end converts, by domain and name."""
    if folder not in _FOLDERS:
        raise UserError(f"no front end is called {folder}", remedy=nearest(folder, _FOLDERS))
    return list(import_module(f"tilewright.frontends.{folder}.table").TABLE.names())


def is_model_folder(path: Path) -> bool:
    """Whether a folder is a model that a front end reads."""
    source = Source(path)
    return path.is_dir() and any(r.recognises(source) for r in _rows() if r.name != "ONNX")


def _rows() -> list[FrontEnd]:
    return [import_module(f"tilewright.frontends.{folder}").FRONT_END for folder in _FOLDERS]


def front_end_of(source: Source) -> FrontEnd:
    """The front end that reads a model."""
    rows = _rows()
    for row in rows:
        if row.recognises(source):
            return row
    raise UserError(
        f"cannot compile {type(source.given).__name__}",
        remedy=f"pass a graph module or a model of {', '.join(r.name for r in rows)}",
    )


def read_model(
    source: Any, shapes: Shapes | None = None, *, params: Any = None, inputs: Any = None
) -> Module:
    """The graph of a model in any format that a front end reads."""
    found = Source(source, params, inputs)
    with collecting_rarely():
        return front_end_of(found).convert(found, shapes or {}, {})
