"""PyTorch, which is imported when a model is read and not before."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.support.errors import UserError


def torch_package() -> Any:
    """The torch module, or an error that says how to install it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise UserError(
            "cannot read models of PyTorch",
            reason=f"the package torch cannot be imported ({error})",
            remedy="pip install 'tilewright[torch]'",
        ) from None


def is_list(given: Any) -> bool:
    """Whether it is a list or a tuple."""
    return isinstance(given, list | tuple)
