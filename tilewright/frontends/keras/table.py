"""Which converter handles which layer of Keras, by the name of its class.

@converts("Flatten")
def flatten(n: Layer) -> Value:
    return n.builder.flatten(n[0])

Operations that are no layers (`keras.ops`, TensorFlow's functions) have domains of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.keras.layer import Layer

TABLE: Final[ConverterTable[Layer]] = ConverterTable("tilewright.frontends.keras.layers")

converts = TABLE.converts
