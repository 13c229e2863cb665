"""A report of what a run copied between host and device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Crossed(NamedTuple):
    """Bytes of the inputs copied to the device and of the outputs copied back, by name."""

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]

    def __str__(self) -> str:
        ways = [(self.inputs, "to the device"), (self.outputs, "back")]
        told = [f"{_listed(sizes)} {way}" for sizes, way in ways if sizes]
        return "; ".join(told) or "nothing"


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({size} bytes)" for name, size in sizes.items())


#: For runs on the host, which copy nothing.
NOTHING: Final = Crossed({}, {})
