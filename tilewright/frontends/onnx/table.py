"""Which converter handles which operator of ONNX: by domain, name and version.

@converts("Softmax", "LogSoftmax", since=13)
def softmax(n: Node) -> Value:
    return n.builder.softmax(n[0], axis=n.integer("axis", -1))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.onnx.node import Node

TABLE: Final[ConverterTable[Node]] = ConverterTable("tilewright.frontends.onnx.ops")

converts = TABLE.converts
find_converter = TABLE.find
