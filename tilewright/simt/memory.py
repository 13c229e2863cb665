"""Memory: the elements of a buffer, once for all, for each block or for each thread.

Accesses are checked: they lie inside, nothing is read that nobody wrote, and threads do not race.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.ir import Buffer
from tilewright.simt.error import LaneError
from tilewright.simt.lanes import Array, Lanes, Mask
from tilewright.simt.races import Race, Races

#: What a byte of data costs besides, for checks: by element.
_CHECKED_BYTES: Final = {"global": 0, "shared": 17, "local": 1}


def bytes_for_each(buffer: Buffer, elements: int) -> int:
    """The bytes that one copy of a buffer takes here."""
    return elements * (buffer.dtype.itemsize + _CHECKED_BYTES.get(buffer.scope, 0))


class Memory:
    """The elements of a buffer, `copies` times; all copies of an element lie side by side.

    `row` says which copy a lane has. Memory that is not given begins as unwritten.
    """

    def __init__(
        self,
        buffer: Buffer,
        size: int,
        *,
        given: Array | None = None,
        row: Array | None = None,
        copies: int = 1,
    ) -> None:
        self.buffer, self.size, self.copies = buffer, size, copies
        self._row = row
        # Masked accesses to an empty buffer still look at an element.
        room = max(size, 1) * copies
        self._data = given if given is not None and size else np.zeros(room, buffer.dtype.numpy)
        self._written = np.zeros(room, bool) if given is None else None
        self._races: Races | None = None
        self.track_races(buffer.scope == "shared")

    def track_races(self, wanted: bool) -> None:
        """Begin to look for races, or end it: for memory that threads share and some write to."""
        self._races = Races(self._data.size) if wanted else None

    def load(self, lanes: Lanes, index: Array, wanted: Mask) -> Array:
        """The elements at `index`; those of lanes that do not want any may be anything."""
        index = self.inside(index, self.size, wanted, lanes)
        if self._is_own_and_uniform(index):
            return self._load_own(lanes, int(index), wanted)
        at = self._position(index)
        if self._written is not None:
            self._require_written(self._written[at], index, wanted, lanes)
        if self._races is not None:
            self._track(lanes, index, at, wanted, write=False)
        return self._data[at]

    def store(self, lanes: Lanes, index: Array, value: Array, wanted: Mask) -> None:
        """Write `value` where lanes want to."""
        index = self.inside(index, self.size, wanted, lanes)
        if self._is_own_and_uniform(index):
            self._store_own(lanes, int(index), value, wanted)
            return
        at = self._position(index)
        if self._races is not None:
            self._track(lanes, index, at, wanted, write=True)
        parts = [at, value] if wanted is None else [at, value, wanted]
        at, value, *masks = np.broadcast_arrays(*parts)
        if masks:
            at, value = at[masks[0]], value[masks[0]]
        self._data[at] = value
        if self._written is not None:
            self._written[at] = True

    def inside(self, index: Array, extent: int, wanted: Mask, lanes: Lanes) -> Array:
        """`index`, which must lie within an extent; where lanes do not want it, it is made to."""
        index = np.asarray(index, np.int64)
        # Negative ones are great as unsigned numbers.
        if index.view(np.uint64).max() < extent:
            return index
        outside = (index < 0) | (index >= extent)
        bad = outside if wanted is None else outside & wanted
        if bad.any():
            lane, number = _first(bad, index, lanes)
            raise LaneError(lane, f"{self._named(number)} lies outside of {extent} elements")
        return np.where(outside, 0, index)

    def _named(self, number: int) -> str:
        return f"the element {number} of {self.buffer.scope} {self.buffer.name}"

    def _position(self, index: Array) -> Array:
        if self._row is None:
            return index
        # Vectors have an axis of lanes behind those of blocks and threads.
        row = self._row[..., None] if index.ndim in (1, 3) else self._row
        return index * self.copies + row

    # ---- memory of one thread, all at the same index: no gathering is needed --------------------

    def _is_own_and_uniform(self, index: Array) -> bool:
        return index.ndim == 0 and self.buffer.scope == "local"

    def _part(self, of: Array, lanes: Lanes, index: int) -> Array:
        return of[index * self.copies : (index + 1) * self.copies].reshape(lanes.shape)

    def _load_own(self, lanes: Lanes, index: int, wanted: Mask) -> Array:
        if self._written is not None:
            written = self._part(self._written, lanes, index)
            self._require_written(written, np.asarray(index), wanted, lanes)
        return self._part(self._data, lanes, index)

    def _store_own(self, lanes: Lanes, index: int, value: Array, wanted: Mask) -> None:
        where: Any = True if wanted is None else wanted
        np.copyto(self._part(self._data, lanes, index), value, where=where)
        if self._written is not None:
            np.copyto(self._part(self._written, lanes, index), True, where=where)

    # ---- checks ---------------------------------------------------------------------------------

    def _require_written(self, written: Array, index: Array, wanted: Mask, lanes: Lanes) -> None:
        if written.all():
            return
        bad = ~written if wanted is None else ~written & wanted
        if bad.any():
            lane, number = _first(bad, index, lanes)
            raise LaneError(lane, f"{self._named(number)} is read, but nobody has written it")

    def _track(self, lanes: Lanes, index: Array, at: Array, wanted: Mask, *, write: bool) -> None:
        assert self._races is not None
        who = lanes.who[..., None] if index.ndim in (1, 3) else lanes.who
        shape = np.broadcast_shapes(at.shape, who.shape, () if wanted is None else wanted.shape)
        at, who = (np.broadcast_to(a, shape).reshape(-1) for a in (at, who))
        accesses = None
        if wanted is not None:
            accesses = np.flatnonzero(np.broadcast_to(wanted, shape))
            at, who = at[accesses], who[accesses]
        if not at.size:
            return
        race = self._races.write(at, who) if write else self._races.read(at, who)
        if race is not None:
            access = race.access if accesses is None else int(accesses[race.access])
            number = int(np.broadcast_to(index, shape).reshape(-1)[access])
            lane = access // (shape[2] if len(shape) == 3 else 1)
            raise LaneError(lane, self._told(race, number, lanes, "writes" if write else "reads"))

    def _told(self, race: Race, number: int, lanes: Lanes, verb: str) -> str:
        if race.block is None:
            other = "threads of other blocks"
        elif race.thread is None:
            other = f"several threads of block {lanes.place_of(race.block, 0).block}"
        else:
            other = str(lanes.place_of(race.block, race.thread))
        return (
            f"a race: it {verb} {self._named(number)}, which {other} {race.verb} with no barrier "
            "between them"
        )


def _first(bad: Array, index: Array, lanes: Lanes) -> tuple[int, int]:
    """The first lane where something is bad, and its index."""
    with_lanes = bad.ndim in (1, 3)
    shape = (*lanes.shape, bad.shape[-1]) if with_lanes else lanes.shape
    spread = np.broadcast_to(bad, np.broadcast_shapes(bad.shape, shape))
    first = int(np.argmax(spread))
    number = int(np.broadcast_to(index, spread.shape).reshape(-1)[first])
    return first // (spread.shape[-1] if with_lanes else 1), number
