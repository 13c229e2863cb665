"""A quantized graph with its report."""

from __future__ import annotations

import os

from tilewright.graph import Module
from tilewright.quantize.report import Report


class QuantizedModule(Module):
    """A graph module with a report, which can be saved as ONNX."""

    __slots__ = ("report",)

    def __init__(self, module: Module, report: Report) -> None:
        super().__init__(module.functions.values(), module.data_types.values())
        self.report = report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as an ONNX model, which ONNX Runtime and others can load."""
        from tilewright.frontends import save_onnx

        save_onnx(self, path)

    def save_report(self, path: str | os.PathLike[str]) -> None:
        """Write the report as an HTML page."""
        from tilewright.quantize.page import report_page
        from tilewright.support.files import replacing

        with replacing(path) as file:
            file.write(report_page(self.report).encode())
