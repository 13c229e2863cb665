"""Which converter handles which operator of MXNet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.mxnet.node import Node

TABLE: Final[ConverterTable[Node]] = ConverterTable("tilewright.frontends.mxnet.ops")

converts = TABLE.converts
