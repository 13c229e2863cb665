"""Which converter handles which operator of TensorFlow, by its name.

@converts("Relu")
def relu(n: Node) -> Value:
    return n.builder.relu(n[0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.tensorflow.node import Node

TABLE: Final[ConverterTable[Node]] = ConverterTable("tilewright.frontends.tensorflow.ops")

converts = TABLE.converts
