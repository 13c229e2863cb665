"""Which buffers of a host program may share memory without serializing launches.

A device runs independent launches concurrently. If a buffer reuses another's memory, its writers
have to wait for the users of the other: that is free only where they would wait anyway, since they
need what these have computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.ir import Buffer


class Branches:
    """The order of calls that follows from their data dependences alone.

    The first call that uses a buffer is assumed to compute it, and the others to read it. So
    buffers that are live at the same time never share memory.
    """

    def __init__(self, users: Mapping[Buffer, Sequence[int]]) -> None:
        """`users` are the times at which calls use each buffer."""
        times = sorted({t for used in users.values() for t in used})
        bit = {t: 1 << k for k, t in enumerate(times)}
        used_at: dict[int, list[Buffer]] = {t: [] for t in times}
        for buffer, used in users.items():
            for t in dict.fromkeys(used):
                used_at[t].append(buffer)
        #: The calls that the call at each time depends on, as bits.
        before: dict[int, int] = {}
        for t in times:
            makers = {users[b][0] for b in used_at[t]} - {t}
            before[t] = 0
            for maker in makers:
                before[t] |= before[maker] | bit[maker]
        #: The length of the longest chain of dependent calls.
        self.chain = _longest(times, before, bit)
        self._before_first = {b: before[used[0]] for b, used in users.items()}
        self._used = {b: sum(bit[t] for t in set(used)) for b, used in users.items()}

    def apart(self, buffers: Iterable[Buffer]) -> dict[Buffer, list[Buffer]]:
        """For each buffer, those that it should not share memory with."""
        rest = list(buffers)
        return {a: [b for b in rest if b is not a and not self._may_share(a, b)] for a in rest}

    def _may_share(self, a: Buffer, b: Buffer) -> bool:
        """Whether one is computed from the results of all users of the other."""
        return not (
            self._used[a] & ~self._before_first[b] and self._used[b] & ~self._before_first[a]
        )


def _longest(times: Sequence[int], before: Mapping[int, int], bit: Mapping[int, int]) -> int:
    """The length of the longest chain of calls, each depending on the one before."""
    lengths: dict[int, int] = {}
    for t in times:
        lengths[t] = 1 + max((n for s, n in lengths.items() if before[t] & bit[s]), default=0)
    return max(lengths.values(), default=0)
