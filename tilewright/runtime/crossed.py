"""What a run copied between the processor and a device, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Crossed(NamedTuple):
    """Bytes of the inputs that went to the device and of the outputs that came back, by name."""

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]

    def __str__(self) -> str:
        ways = [(self.inputs, "to the device"), (self.outputs, "back")]
        told = [f"{_listed(sizes)} {way}" for sizes, way in ways if sizes]
        return "; ".join(told) or "nothing"


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({size} bytes)" for name, size in sizes.items())


#: Where inputs and outputs lie where the model runs.
NOTHING: Final = Crossed({}, {})
