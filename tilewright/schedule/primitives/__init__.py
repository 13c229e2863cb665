"""Schedule primitives: `NAME.py` has `NAME(tree, …) -> Edit` and `check(tree, …)`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from tilewright.schedule.edit import Edit
from tilewright.support.errors import UserError, nearest


@cache
def primitive_names() -> tuple[str, ...]:
    """Every primitive there is."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@cache
def find_primitive(name: str) -> Callable[..., Edit]:
    """The primitive of this name."""
    if name not in primitive_names():
        raise UserError(f"there is no primitive {name!r}", remedy=nearest(name, primitive_names()))
    return getattr(importlib.import_module(f"{__name__}.{name}"), name)
