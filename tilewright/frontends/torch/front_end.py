"""PyTorch's row in the table of front ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.graph import Module


def _recognises(source: Source) -> bool:
    """PyTorch's objects, by the names of their types, and its archives."""
    names = {f"{c.__module__}.{c.__name__}" for c in type(source.given).__mro__}
    if not names.isdisjoint(_TYPES):
        return True
    from tilewright.frontends.torch.archive import is_torch_file

    return is_torch_file(source)


_TYPES: Final = frozenset(
    {"torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram"}
)


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    from tilewright.frontends.torch.from_torch import from_torch

    del values
    return from_torch(source.given, source.inputs, shapes)


def _input_names(source: Source) -> list[str]:
    from tilewright.frontends.torch.from_torch import input_names

    return input_names(source.given, source.inputs)


FRONT_END: Final = FrontEnd("PyTorch", _recognises, _convert, _input_names)
