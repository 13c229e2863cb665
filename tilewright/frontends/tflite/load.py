"""A model from a path or from bytes: its subgraphs, tensors and operators, checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.files import mapped_file
from tilewright.frontends.tflite import schema
from tilewright.frontends.tflite.flatbuffer import DamagedError, File, Table
from tilewright.frontends.tflite.tensors import Quantization, read_constant, read_quantization
from tilewright.graph import Array
from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_bytes, is_path

#: The file identifier, at byte 4.
MARK: Final = b"TFL3"
#: Custom operators have names of their own, in this domain of the table of converters.
CUSTOM: Final = "custom"
_MAX_RANK: Final = 32


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor of a subgraph, as the file declares it."""

    name: str
    #: The name of its element type in the schema.
    type: str
    #: Extents; None for one that is known only at run time. No shape: any rank.
    shape: list[int | None] | None
    quantization: Quantization | None = None
    is_variable: bool = False
    constant: Array | None = None


@dataclass(slots=True)
class Operator:
    """A node: its operator, the numbers of its tensors (-1 where one is left out), its options."""

    name: str
    domain: str
    version: int
    inputs: list[int]
    outputs: list[int]
    intermediates: list[int]
    options: Table | None
    custom: bytes


@dataclass(slots=True)
class SubGraph:
    """One of the graphs of a model."""

    name: str
    tensors: list[Tensor]
    inputs: list[int]
    outputs: list[int]
    operators: list[Operator]


@dataclass(slots=True)
class Signature:
    """Names for the inputs and outputs of a subgraph, by the numbers of their tensors."""

    key: str
    subgraph: int
    inputs: dict[int, str]
    outputs: dict[int, str]


@dataclass(slots=True)
class LoadedModel:
    """A model that has been read."""

    name: str
    subgraphs: list[SubGraph]
    signatures: list[Signature] = field(default_factory=list[Signature])


def load_model(source: Any) -> LoadedModel:
    """Read a model; constants are views of its file, which is mapped."""
    name, data = _bytes_of(source)
    if bytes(data[4:8]) != MARK:
        raise UserError(
            f"{name} is no TFLite model",
            reason="it has not the identifier TFL3",
            remedy="check that the file is complete",
        )
    file = File(data)
    return _Reader(file, name).model()


def _bytes_of(source: Any) -> tuple[str, np.ndarray[Any, Any]]:
    if is_bytes(source):
        return "the model", np.frombuffer(source, np.uint8)
    if not is_path(source):
        raise UserError(
            f"cannot read a TFLite model from {type(source).__name__}",
            remedy="pass a path or bytes",
        )
    path = Path(os.fspath(source))
    try:
        return str(path), mapped_file(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read {path}", reason=reason) from None


class _Reader:
    """Reads the tables of one file."""

    def __init__(self, file: File, name: str) -> None:
        self._file, self._name = file, name
        self._root = file.root()
        self._codes: list[tuple[str, str, int]] = [
            _code(t) for t in self._root.tables(schema.MODEL["codes"])
        ]
        self._buffers = self._root.tables(schema.MODEL["buffers"])

    def model(self) -> LoadedModel:
        subgraphs = [self._subgraph(t) for t in self._root.tables(schema.MODEL["subgraphs"])]
        if not subgraphs:
            raise DamagedError("it has no graph")
        signatures = [_signature(t) for t in self._root.tables(schema.MODEL["signatures"])]
        known = [s for s in signatures if s.subgraph < len(subgraphs)]
        return LoadedModel(self._name, subgraphs, known)

    def _subgraph(self, table: Table) -> SubGraph:
        fields = schema.SUBGRAPH
        tensors = [self._tensor(t) for t in table.tables(fields["tensors"])]
        inputs, outputs = (table.integers(fields[f]) for f in ("inputs", "outputs"))
        _require_numbers([*inputs, *outputs], 0, len(tensors))
        operators = [self._operator(t, len(tensors)) for t in table.tables(fields["operators"])]
        return SubGraph(table.text(fields["name"]), tensors, inputs, outputs, operators)

    def _tensor(self, table: Table) -> Tensor:
        fields = schema.TENSOR
        name = table.text(fields["name"])
        type_ = _named(schema.TYPES, table.number(fields["type"], "b"), "element type")
        shape = table.integers(fields["shape"])
        if len(shape) > _MAX_RANK or any(d < 0 for d in shape):
            raise DamagedError(f"the tensor {name} has the shape {shape[:_MAX_RANK]}")
        if table.number(fields["external"], "I"):
            raise UserError(
                f"the tensor {name} has its data in another file",
                remedy="store the model with its weights inside",
            )
        found = read_quantization(table.table(fields["quantization"]), len(shape), name)
        variable = bool(table.number(fields["is_variable"], "?", False))
        data = self._buffer(table.number(fields["buffer"], "I"))
        constant = None
        if data is not None and not variable:
            sparsity = table.table(fields["sparsity"])
            constant = read_constant(data, type_, shape, sparsity, name)
        signature = table.integers(fields["signature"])
        declared = _declared(shape, signature, bool(table.number(fields["has_rank"], "?", False)))
        return Tensor(name, type_, declared, found, variable, constant)

    def _buffer(self, number: int) -> np.ndarray[Any, Any] | None:
        """The bytes of a buffer; None if it is empty, as for computed tensors."""
        if number >= len(self._buffers):
            raise DamagedError(f"it has no buffer {number}")
        table = self._buffers[number]
        fields = schema.BUFFER
        offset = table.number(fields["offset"], "Q")
        if offset > 1:
            # Data that does not fit into a flatbuffer is stored after it.
            return self._file.bytes(offset, table.number(fields["size"], "Q"))
        data = table.array(fields["data"], np.dtype(np.uint8))
        return data if len(data) else None

    def _operator(self, table: Table, tensors: int) -> Operator:
        fields = schema.OPERATOR
        code: int = table.number(fields["code"], "I")
        if code >= len(self._codes):
            raise DamagedError(f"it has no operator code {code}")
        name, domain, version = self._codes[code]
        inputs, outputs, inner = (
            table.integers(fields[f]) for f in ("inputs", "outputs", "intermediates")
        )
        _require_numbers(inputs, -1, tensors)
        _require_numbers([*outputs, *inner], 0, tensors)
        offset = table.number(fields["custom_offset"], "Q")
        if offset > 1:
            custom = self._file.bytes(offset, table.number(fields["custom_size"], "Q"))
        else:
            custom = table.array(fields["custom"], np.dtype(np.uint8))
        self._file.spend(len(custom))
        options = table.table(fields["options"])
        return Operator(name, domain, version, inputs, outputs, inner, options, custom.tobytes())


def _code(table: Table) -> tuple[str, str, int]:
    """The name of an operator, its domain and its version."""
    fields = schema.CODE
    # Numbers from 127 on are newer, and have a field of their own.
    number = max(table.number(fields["old_builtin"], "b"), table.number(fields["builtin"], "i"))
    name = _named(schema.OPERATORS, number, "operator")
    version = table.number(fields["version"], "i", 1)
    if name == "CUSTOM":
        return table.text(fields["custom"]), CUSTOM, version
    return name, "", version


def _signature(table: Table) -> Signature:
    fields = schema.SIGNATURE
    inputs, outputs = (
        {
            t.number(schema.NAMED["index"], "I"): t.text(schema.NAMED["name"])
            for t in table.tables(fields[side])
        }
        for side in ("inputs", "outputs")
    )
    key = table.text(fields["key"])
    return Signature(key, table.number(fields["subgraph"], "I"), inputs, outputs)


def _declared(shape: list[int], signature: list[int], has_rank: bool) -> list[int | None] | None:
    """The shape with None for variable extents."""
    if len(signature) != len(shape):
        return [*shape]
    if not shape and signature and not has_rank:
        return None
    return [None if s == -1 else d for d, s in zip(shape, signature, strict=True)]


def _named(names: Sequence[str], number: int, what: str) -> str:
    if not 0 <= number < len(names):
        raise UserError(
            f"the TFLite model uses the {what} {number}",
            reason=f"{len(names)} of them are known",
            remedy="the file is damaged, or newer than this version of Tilewright",
        )
    return names[number]


def _require_numbers(found: Sequence[int], least: int, count: int) -> None:
    if any(not least <= n < count for n in found):
        raise DamagedError(f"it refers to tensors that it does not have, by {list(found)[:8]}")
