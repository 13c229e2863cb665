"""The `onnx` package, imported when it is first needed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from tilewright.support.errors import UserError


@cache
def onnx_package() -> Any:
    """The package, or an error that says how to install it."""
    try:
        return import_module("onnx")
    except ImportError as error:
        raise UserError(
            "cannot read an ONNX model",
            reason=f"the package onnx cannot be imported ({error})",
            remedy="install it: pip install tilewright[onnx]",
        ) from None
