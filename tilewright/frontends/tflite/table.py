"""Which converter handles which operator of TFLite: built-in ones by name, others as "custom".

@converts("LOGISTIC")
def logistic(n: Node) -> Value:
    return n.builder.sigmoid(n[0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.tflite.node import Node

TABLE: Final[ConverterTable[Node]] = ConverterTable("tilewright.frontends.tflite.ops")

converts = TABLE.converts
find_converter = TABLE.find
