"""Statistics of the inputs of layers over batches, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph import Array, Function, Module, Value
from tilewright.quantize.histogram import Histogram
from tilewright.quantize.layers import Layer, stored_images
from tilewright.support.errors import UserError

Batch = Mapping[str, Array]
#: Called with a description of the current step, after each unit of it.
Progress = Callable[[str], None]


class Statistics:
    """Statistics of one value, in total and by channel."""

    def __init__(self, axis: int) -> None:
        self.histogram = Histogram()
        #: The shape of the last array.
        self.shape: tuple[int, ...] = ()
        self._axis = axis
        self._greatest: Array | None = None
        self._sums: Array | None = None
        self._rows = 0

    def add(self, array: Array) -> None:
        """Add the value in one batch."""
        self.shape = array.shape
        if not array.size:
            return
        self.histogram.add(array)
        rows = np.moveaxis(array, self._axis, -1).reshape(-1, array.shape[self._axis])
        greatest, sums = np.abs(rows).max(axis=0), rows.sum(axis=0, dtype=np.float64)
        self._greatest = (
            greatest if self._greatest is None else np.maximum(self._greatest, greatest)
        )
        self._sums = sums if self._sums is None else self._sums + sums
        self._rows += len(rows)

    @property
    def greatest(self) -> Array:
        """The largest magnitude in each channel."""
        assert self._greatest is not None
        return self._greatest

    @property
    def means(self) -> Array:
        """The mean of each channel."""
        assert self._sums is not None
        return self._sums / self._rows


def observed(
    module: Module, layers: Sequence[Layer], batches: Iterable[Batch], step: Callable[[], None]
) -> dict[Value, Statistics]:
    """Statistics of the inputs of layers and of other stored images; `step` follows each batch."""
    found = {layer.x: Statistics(layer.row.inputs) for layer in layers}
    found |= {image: Statistics(1) for image in stored_images(module, layers)}
    for values in tapped_values(module, list(found), batches):
        for value, statistics in found.items():
            statistics.add(values[value])
        step()
    return found


def tapped_values(
    module: Module, wanted: Sequence[Value], batches: Iterable[Batch]
) -> Iterator[Mapping[Value, Array]]:
    """The values of these variables of `main`, batch by batch."""
    from tilewright.compile import compile

    taps = [v for v in wanted if v not in module.main.params]
    run: Any = compile(_tapped(module, taps)).run if taps else None
    for batch in batches:
        values = dict(zip(taps, run(dict(batch)), strict=True)) if taps else {}
        yield {v: _finite(values[v] if v in values else batch[v.name], v) for v in wanted}


def _finite(array: Array, value: Value) -> Array:
    if np.isfinite(array).all():
        return array
    raise UserError(
        f"cannot calibrate {value.name}",
        reason="the model itself computes NaN or infinity there",
        remedy="look at the data: preprocessing may be missing",
    )


def _tapped(module: Module, values: list[Value]) -> Module:
    main = module.main
    names = [f"tap{k}" for k in range(len(values))]
    return Module([Function("main", main.params, main.body, values, names)])
