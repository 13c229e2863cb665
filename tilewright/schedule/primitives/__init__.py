"""Schedule primitives: a file `NAME.py` has `NAME(tree, …) -> Edit` and `check(tree, …)`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from tilewright.schedule.edit import Edit
from tilewright.support.errors import UserError, nearest


@cache
def _modules() -> dict[str, str]:
    """The module of each primitive, by name."""
    found = [m.name for m in pkgutil.walk_packages(__path__, f"{__name__}.") if not m.ispkg]
    return {full.rpartition(".")[2]: full for full in found}


@cache
def primitive_names() -> tuple[str, ...]:
    """The names of all primitives."""
    return tuple(sorted(_modules()))


@cache
def find_primitive(name: str) -> Callable[..., Edit]:
    """The primitive of this name."""
    if name not in primitive_names():
        raise UserError(f"there is no primitive {name!r}", remedy=nearest(name, primitive_names()))
    return getattr(importlib.import_module(_modules()[name]), name)
