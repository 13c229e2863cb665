"""Which converter handles which layer of Caffe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.caffe.layer import Layer

TABLE: Final[ConverterTable[Layer]] = ConverterTable("tilewright.frontends.caffe.ops")

converts = TABLE.converts
