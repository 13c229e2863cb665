"""Memory: the elements of a buffer, with one copy in total, per block or per thread.

Accesses are checked: they must be in bounds, read no uninitialized elements, and not race.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.ir import Buffer
from tilewright.simt.error import LaneError
from tilewright.simt.lanes import Array, Lanes, Mask
from tilewright.simt.races import Race, Races
from tilewright.simt.unknown import raise_where

#: Bytes of bookkeeping per element, for the checks.
_CHECKED_BYTES: Final = {"global": 0, "shared": 17, "local": 1}


def bytes_for_each(buffer: Buffer, elements: int) -> int:
    """The memory that one copy of a buffer takes in the executor."""
    return elements * (buffer.dtype.itemsize + _CHECKED_BYTES.get(buffer.scope, 0))


class Memory:
    """The elements of a buffer, `copies` times; all copies of an element are adjacent.

    `row` is the copy of each lane. Memory that is not given starts uninitialized.
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
        # Masked accesses to an empty buffer still index an element.
        room = max(size, 1) * copies
        self._data = given if given is not None and size else np.zeros(room, buffer.dtype.numpy)
        self._written = np.zeros(room, bool) if given is None else None
        self._races: Races | None = None
        self.track_races(buffer.scope == "shared")

    def track_races(self, wanted: bool) -> None:
        """Enable or disable race detection: for shared memory that some thread writes."""
        self._races = Races(self._data.size) if wanted else None

    def forget_accesses(self) -> None:
        """Called after a barrier of all threads, which separates accesses before and after it."""
        if self._races is not None:
            self._races.forget()

    def load(self, lanes: Lanes, index: Array, wanted: Mask) -> tuple[Array, Mask]:
        """The elements at `index`, and where they are uninitialized.

        The values of inactive lanes are arbitrary.
        """
        index = self.inside(index, self.size, wanted, lanes)
        if self._is_own_and_uniform(index):
            at: Any = slice(int(index) * self.copies, (int(index) + 1) * self.copies)
            shape = lanes.shape
        else:
            at, shape = self._position(index), None
        if self._races is not None:
            self._track(lanes, index, at, wanted, write=False)
        data = self._data[at] if shape is None else self._data[at].reshape(shape)
        if self._written is None:
            return data, None
        written = self._written[at] if shape is None else self._written[at].reshape(shape)
        if written.all():
            return data, None
        unwritten = ~written if wanted is None else ~written & wanted
        if not unwritten.any():
            return data, None
        lanes.remember(unwritten, self._named, index)
        return data, unwritten

    def require_fenced(self, lanes: Lanes, index: Array, wanted: Mask) -> None:
        """Require that group products only read elements stored before the threads' last fence."""
        if self._races is None:
            return
        late = self._races.barriers_before(self._position(index)) > lanes.fenced[..., None]
        late = late if wanted is None else late & wanted
        if late.any():
            lane, number = lanes.first_of(late, index)
            raise LaneError(
                lane, f"its group multiplies {self._named(number)} with no fence before"
            )

    def store(self, lanes: Lanes, index: Array, value: Array, unknown: Mask, wanted: Mask) -> None:
        """Write `value` in active lanes; unknown values count as uninitialized."""
        index = self.inside(index, self.size, wanted, lanes)
        if unknown is not None and self._written is None:
            raise_where(unknown, wanted, f"what is stored to {self.buffer.name}")
        if self._is_own_and_uniform(index):
            self._store_own(lanes, int(index), value, unknown, wanted)
            return
        at = self._position(index)
        if self._races is not None:
            self._track(lanes, index, at, wanted, write=True)
        known = np.ones((), bool) if unknown is None else ~unknown
        parts = [at, value, known] if wanted is None else [at, value, known, wanted]
        at, value, known, *masks = np.broadcast_arrays(*parts)
        if masks:
            at, value, known = at[masks[0]], value[masks[0]], known[masks[0]]
        self._data[at] = value
        if self._written is not None:
            self._written[at] = known

    def inside(self, index: Array, extent: int, wanted: Mask, lanes: Lanes) -> Array:
        """`index`, which must be within `extent` in active lanes; it is clamped in others."""
        index = np.asarray(index, np.int64)
        # As unsigned numbers, negative indices are too large as well.
        if index.view(np.uint64).max() < extent:
            return index
        outside = (index < 0) | (index >= extent)
        bad = outside if wanted is None else outside & wanted
        if bad.any():
            lane, number = lanes.first_of(bad, index)
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

    # ---- memory of one thread with a uniform index, which needs no gather ------------------------

    def _is_own_and_uniform(self, index: Array) -> bool:
        return index.ndim == 0 and self.buffer.scope == "local"

    def _store_own(
        self, lanes: Lanes, index: int, value: Array, unknown: Mask, wanted: Mask
    ) -> None:
        at = slice(index * self.copies, (index + 1) * self.copies)
        where: Any = True if wanted is None else wanted
        np.copyto(self._data[at].reshape(lanes.shape), value, where=where)
        if self._written is not None:
            known = True if unknown is None else ~unknown
            np.copyto(self._written[at].reshape(lanes.shape), known, where=where)

    # ---- checks ---------------------------------------------------------------------------------

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
        if lanes.arrived is not None and self.buffer.scope == "shared":
            lane, number = lanes.first_of(np.ones((), bool) if wanted is None else wanted, index)
            reason = "which its group has told to be done with, without awaiting the other group"
            raise LaneError(lane, f"it touches {self._named(number)}, {reason}")
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
