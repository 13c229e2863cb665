"""Non-temporal stores for large results of memory-bound kernels.

An ordinary store reads a cache line before writing it, which is a third of the traffic of a copy;
and a result larger than the last-level cache is evicted before anything reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import Block, Buffer, Const, Function, Load, Store, all_exprs, const, walk
from tilewright.schedule.rules.analysis import is_injective, operations, stores_of
from tilewright.schedule.rules.elementwise import instances, is_uniform
from tilewright.schedule.rules.rule import Rule, if_wanted
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _results_to_stream(s: Schedule, _block: str, target: Target) -> list[int] | None:
    """The numbers of the results that should bypass the caches."""
    function, timing = s.function, target.timing
    if not target.gains_by_streaming or "in_place" in function.attrs:
        return None
    touched = _touched(function)
    is_small = touched <= max(timing.least_streamed, *target.caches)
    if is_small or _work(function) > timing.memory_bound_operations * touched:
        return None
    results = set(_results(function, target.caches.line))
    return [k for k, buffer in enumerate(function.buffers) if buffer in results] or None


def _stream(s: Schedule, _block: str, numbers: list[int], _target: Target) -> None:
    s.stream(numbers)


STREAM = Rule("stream", _results_to_stream, if_wanted, _stream)


def streams(function: Function) -> bool:
    """Whether results of a function bypass the caches."""
    return bool(function.attrs.get("streams"))


def _touched(function: Function) -> int:
    """Bytes of all inputs and outputs of known size."""
    sizes = [(b.static_size() or 0) * b.dtype.itemsize for b in function.buffers]
    return sum(sizes)


def _work(function: Function) -> int:
    return sum(instances(b) * operations(b) for b in walk(function.body) if isinstance(b, Block))


def _results(function: Function, line: int) -> Iterator[Buffer]:
    """Buffers that only independent instances write, in whole lines, and that are never read."""
    read = {e.buffer for e in all_exprs(function.body) if isinstance(e, Load)}
    blocks = [b for b in walk(function.body) if isinstance(b, Block)]
    written = [(s, b) for b in blocks if is_injective(b) for s in stores_of(b)]
    stores = [s for s in walk(function.body) if isinstance(s, Store)]
    for buffer in {s.buffer for s in stores} - read:
        own = [b for s, b in written if s.buffer is buffer]
        whole = all(is_uniform(b) for b in own) or _has_whole_lines(buffer, line)
        if whole and len(own) == sum(s.buffer is buffer for s in stores):
            yield buffer


def _has_whole_lines(buffer: Buffer, line: int) -> bool:
    row = buffer.shape[-1] if buffer.shape else const(1)
    return isinstance(row, Const) and int(row.value) * buffer.dtype.itemsize % line == 0
