"""Writes TFLite models for tests.

w = Writer()
x = w.input("int8", [1, 8, 8, 3], scale=0.02, zero=-3)
y = w.op("LOGISTIC", [x], w.tensor("int8", [1, 8, 8, 3], scale=1 / 256, zero=-128))
data = w.model([y])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.frontends.tflite.flatbuffers_writer import Fields, flatbuffer
from tilewright.frontends.tflite import schema

NUMBERS = {name: number for number, name in enumerate(schema.TYPES)}


class Writer:
    """A model in the making; tensors are told by their numbers."""

    def __init__(self) -> None:
        self.buffers: list[Fields] = [{}]
        self.codes: list[Fields] = []
        self.graphs: list[Fields] = []
        self.signatures: list[Fields] = []
        self._start()

    def _start(self) -> None:
        self.tensors: list[Fields] = []
        self.inputs: list[int] = []
        self.operators: list[Fields] = []

    # ---- tensors --------------------------------------------------------------------------------

    def tensor(
        self,
        dtype: str,
        shape: Sequence[int] = (),
        *,
        scale: Any = None,
        zero: Any = 0,
        axis: int = 0,
        data: Any = None,
        name: str = "",
        signature: Sequence[int] | None = None,
        variable: bool = False,
    ) -> int:
        """A tensor; with `data`, a constant."""
        fields: Fields = {0: np.array(shape, np.int32), 1: ("b", NUMBERS[dtype])}
        if data is not None:
            self.buffers.append({0: np.frombuffer(data, np.uint8)})
            fields[2] = ("I", len(self.buffers) - 1)
        fields[3] = name or f"t{len(self.tensors)}"
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            zeros = np.broadcast_to(np.asarray(zero, np.int64), scales.shape)
            fields[4] = {2: scales, 3: zeros, 6: ("i", axis)}
        if variable:
            fields[5] = ("?", True)
        if signature is not None:
            fields[7] = np.array(signature, np.int32)
        self.tensors.append(fields)
        return len(self.tensors) - 1

    def input(self, dtype: str, shape: Sequence[int] = (), **more: Any) -> int:
        named: dict[str, Any] = {"name": f"x{len(self.inputs)}", **more}
        number = self.tensor(dtype, shape, **named)
        self.inputs.append(number)
        return number

    def constant(self, array: Any, **more: Any) -> int:
        found = np.asarray(array)
        return self.tensor(found.dtype.name, found.shape, data=found.tobytes(), **more)

    # ---- operators ------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: int | Sequence[int],
        *,
        version: int = 1,
        custom: bytes = b"",
        intermediates: Sequence[int] = (),
        **options: Any,
    ) -> Any:
        """A node, by the names that the schema gives to options; what it makes."""
        outs = [outputs] if isinstance(outputs, int) else list(outputs)
        fields: Fields = {
            0: ("I", self._code(name, version)),
            1: np.array(inputs, np.int32),
            2: np.array(outs, np.int32),
        }
        known = schema.options_of(name)
        if known:
            fields[3] = ("B", _OPTION_TYPES.get(name, 0))
            fields[4] = {known[o].number: _option(known[o].form, v) for o, v in options.items()}
        if custom:
            fields[5] = np.frombuffer(custom, np.uint8)
        if intermediates:
            fields[8] = np.array(intermediates, np.int32)
        self.operators.append(fields)
        return outputs

    def _code(self, name: str, version: int) -> int:
        if name in schema.OPERATORS:
            number = schema.OPERATORS.index(name)
            fields: Fields = {0: ("b", min(number, 127)), 2: ("i", version), 3: ("i", number)}
        else:
            number = schema.OPERATORS.index("CUSTOM")
            fields = {0: ("b", number), 1: name, 2: ("i", version), 3: ("i", number)}
        if fields not in self.codes:
            self.codes.append(fields)
        return self.codes.index(fields)

    # ---- graphs ---------------------------------------------------------------------------------

    def graph(self, outputs: Sequence[int]) -> int:
        """End a subgraph; its number."""
        self.graphs.append(
            {
                0: self.tensors,
                1: np.array(self.inputs, np.int32),
                2: np.array(outputs, np.int32),
                3: self.operators,
            }
        )
        self._start()
        return len(self.graphs) - 1

    def sign(
        self, key: str, graph: int, inputs: Mapping[str, int], outputs: Mapping[str, int]
    ) -> None:
        """Give the inputs and outputs of a graph names."""
        sides = [[{0: n, 1: ("I", t)} for n, t in side.items()] for side in (inputs, outputs)]
        self.signatures.append({0: sides[0], 1: sides[1], 2: key, 4: ("I", graph)})

    def model(self, outputs: Sequence[int] | None = None, *, main: int | None = None) -> bytes:
        """The file; its main subgraph is the last, unless another is named."""
        return file_of(self.fields(outputs, main=main))

    def fields(self, outputs: Sequence[int] | None = None, *, main: int | None = None) -> Fields:
        """The table that the file holds."""
        if outputs is not None:
            self.graph(outputs)
        first = len(self.graphs) - 1 if main is None else main
        assert first == 0 or main is not None or len(self.graphs) == 1, "the first graph is run"
        fields: Fields = {0: ("I", 3), 1: self.codes, 2: self.graphs, 4: self.buffers}
        return fields | ({7: self.signatures} if self.signatures else {})


def file_of(fields: Fields) -> bytes:
    """A file that holds a table."""
    return flatbuffer(fields, b"TFL3")


def _option(form: str, value: Any) -> Any:
    if form == "s":
        return str(value)
    if form.endswith("*"):
        return np.array(value, f"<{form[0]}4")
    return form, value


#: The number that the union of options has for each operator's.
_OPTION_TYPES = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "L2_POOL_2D": 5,
    "SVDF": 6, "RNN": 7, "FULLY_CONNECTED": 8, "SOFTMAX": 9, "CONCATENATION": 10, "ADD": 11,
    "L2_NORMALIZATION": 12, "LOCAL_RESPONSE_NORMALIZATION": 13, "LSTM": 14, "RESIZE_BILINEAR": 15,
    "CALL": 16, "RESHAPE": 17, "SPACE_TO_DEPTH": 19, "MUL": 21, "GATHER": 23, "MEAN": 27, "SUM": 27,
    "REDUCE_PROD": 27, "REDUCE_MAX": 27, "REDUCE_MIN": 27, "REDUCE_ANY": 27, "REDUCE_ALL": 27,
    "SUB": 28, "DIV": 29, "SQUEEZE": 30, "UNIDIRECTIONAL_SEQUENCE_RNN": 31, "STRIDED_SLICE": 32,
    "SPLIT": 35, "CAST": 37, "ARG_MAX": 40, "TRANSPOSE_CONV": 49, "SHAPE": 55, "ARG_MIN": 57,
    "FAKE_QUANT": 58, "PACK": 59, "ONE_HOT": 61, "UNPACK": 64, "BIDIRECTIONAL_SEQUENCE_LSTM": 69,
    "BIDIRECTIONAL_SEQUENCE_RNN": 70, "UNIDIRECTIONAL_SEQUENCE_LSTM": 71,
    "RESIZE_NEAREST_NEIGHBOR": 74, "LEAKY_RELU": 75, "MIRROR_PAD": 77, "SPLIT_V": 79, "UNIQUE": 80,
    "REVERSE_SEQUENCE": 87, "IF": 92, "WHILE": 93, "DEPTH_TO_SPACE": 94, "BATCH_MATMUL": 101,
    "CUMSUM": 102, "CALL_ONCE": 103, "CONV_3D": 106, "CONV_3D_TRANSPOSE": 106, "HASHTABLE": 107,
    "VAR_HANDLE": 111, "BUCKETIZE": 115, "GELU": 116,
}  # fmt: skip
