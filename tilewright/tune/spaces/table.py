"""The search spaces for kernels of models, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.ir import Function
from tilewright.support.errors import UserError, nearest
from tilewright.target import Target
from tilewright.tune.spaces.rules import rule_space
from tilewright.tune.spaces.sketches import sketch_space
from tilewright.tune.spaces.space import Space

SPACES: Final[dict[str, Callable[[Function, Target], Space]]] = {
    "rules": rule_space,
    "sketches": sketch_space,
}


def space_named(name: str) -> Callable[[Function, Target], Space]:
    """The constructor of the spaces with this name."""
    if name not in SPACES:
        raise UserError(f"there is no space {name!r}", remedy=nearest(name, SPACES))
    return SPACES[name]
