"""Which converter handles which section of a cfg file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.darknet.layer import Layer

TABLE: Final[ConverterTable[Layer]] = ConverterTable("tilewright.frontends.darknet.ops")

converts = TABLE.converts
