"""What a converter sees of a section: operands, options, weights, the builder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tilewright.frontends.common.padding import dim_number
from tilewright.frontends.darknet.cfg import Section
from tilewright.frontends.darknet.weights import Weights
from tilewright.graph import Builder, Value
from tilewright.support.errors import UserError

_WHOLE: Final = re.compile(r"[+-]?\d{1,10}")
_REAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


class Layer:
    """One section during its conversion. Numbers are parsed as in C: text after a number is
    ignored."""

    def __init__(
        self,
        section: Section,
        index: int,
        before: Sequence[Value],
        builder: Builder,
        weights: Weights,
        image: tuple[int, int],
    ) -> None:
        self.section, self.index, self._before = section, index, before
        self.builder, self.weights = builder, weights
        #: Height and width of the network's input.
        self.image = image
        #: The layers that this one reads.
        self.reads: set[int] = set()

    # ---- operands -------------------------------------------------------------------------------

    @property
    def x(self) -> Value:
        """The output of the layer before this one."""
        return self.layer(self.index - 1)

    def layer(self, index: int) -> Value:
        """The output of a layer by its number; -1 is the input of the network."""
        if not -1 <= index < self.index:
            raise UserError(f"it reads layer {index}", reason="there is no such layer before it")
        self.reads.add(index)
        return self._before[index + 1]

    def layers(self, option: str) -> list[Value]:
        """The layers that an option names; negative numbers count back from this one."""
        return [self.layer(self.index + k if k < 0 else k) for k in self.integers(option)]

    def image_shape(self, x: Value) -> tuple[int, int, int]:
        """Channels, height and width of an image, which must be numbers here."""
        if x.ndim != 4:
            raise UserError(f"{x} is no image")
        sizes = [dim_number(d) for d in x.shape[1:]]
        channels, height, width = (s if isinstance(s, int) else -1 for s in sizes)
        if min(channels, height, width) < 0:
            raise UserError(
                f"the sizes of {x} must be known", remedy="give height and width as numbers"
            )
        return channels, height, width

    # ---- options --------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return name in self.section.options

    def text(self, name: str, default: str) -> str:
        return self.section.options.get(name, default)

    def integer(self, name: str, default: int) -> int:
        return _whole(name, self.section.options[name]) if self.has(name) else default

    def positive(self, name: str, default: int) -> int:
        """A count or a size, from 1 up."""
        found = self.integer(name, default)
        if found < 1:
            raise UserError(f"{name} is {found}", remedy="use a number from 1 up")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, int(default)))

    def real(self, name: str, default: float) -> float:
        return _real(name, self.section.options[name]) if self.has(name) else default

    def integers(self, name: str) -> list[int]:
        return [_whole(name, part) for part in self._parts(name)]

    def reals(self, name: str) -> list[float]:
        return [_real(name, part) for part in self._parts(name)]

    def _parts(self, name: str) -> list[str]:
        return [part for part in self.text(name, "").split(",") if part]

    def refuse(self, name: str) -> None:
        """Refuse an option that changes what is computed and is not known here."""
        if self.has(name) and self.text(name, "0") not in ("0", "none"):
            raise UserError(f"the option {name}={self.text(name, '')} is not supported")


def _whole(name: str, text: str) -> int:
    found = _WHOLE.match(text)
    if found is None:
        raise UserError(f"{name} is {text[:40]!r}", reason="a whole number must be there")
    return int(found[0])


def _real(name: str, text: str) -> float:
    found = _REAL.match(text)
    if found is None:
        raise UserError(f"{name} is {text[:40]!r}", reason="a number must be there")
    return float(found[0])
