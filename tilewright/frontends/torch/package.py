"""PyTorch, which is imported when a model is read and not before."""

from __future__ import annotations

from typing import Any

from tilewright.support.errors import UserError


def torch_package() -> Any:
    """The torch module; an error that says how to get it where it is missing."""
    try:
        import torch
    except ImportError as error:
        raise UserError(
            "cannot read models of PyTorch",
            reason=f"the package torch cannot be imported ({error})",
            remedy="pip install 'tilewright[torch]'",
        ) from None
    return torch
