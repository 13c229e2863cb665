"""Replays the runs of functions as CUDA graphs."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tilewright.support.libcuda import let_go

if TYPE_CHECKING:
    from tilewright.runtime.gpu.crossing import Crossing
    from tilewright.runtime.gpu.cuda import Cuda

#: Most graphs per function, each for other arrays or sizes.
_MOST_GRAPHS: Final = 64
#: Marks of a run that was seen once, and of one that cannot be captured.
_ONCE, NEVER = object(), object()


class Replayed:
    """The entry of a function. Runs with the same words and copies launch the same kernels: from
    the second such run on, they are replayed as one graph."""

    def __init__(self, device: Cuda, entry: Callable[[Any], int], name: str) -> None:
        self._device, self._entry, self._name = device, entry, name
        self._graphs: dict[bytes, Any] = {}
        weakref.finalize(self, _forget, self._graphs).atexit = False

    def __call__(self, words: Any, crossing: Crossing | None = None) -> int:
        with self._device.lock:
            self._device.launched[self._name] = None
            if crossing is not None:
                crossing.keep()
            if not self._device.waits and not self._device.is_capturing:
                return self._run(words, crossing)
            self._device.fence()
            return self._device.enter(self._entry, words, crossing)

    def _run(self, words: Any, crossing: Crossing | None) -> int:
        key = bytes(words) if crossing is None else bytes(words) + crossing.key
        known = self._graphs.get(key)
        if known is _ONCE:
            known = self._graphs[key] = self._device.captured(self._entry, words, crossing)
        if isinstance(known, ctypes.c_void_p):
            self._device.replay(known)
            return 0
        if known is None:
            if len(self._graphs) >= _MOST_GRAPHS:
                _forget(self._graphs)
            self._graphs[key] = _ONCE
        return self._device.enter(self._entry, words, crossing)


def _forget(graphs: dict[bytes, Any]) -> None:
    for graph in graphs.values():
        if isinstance(graph, ctypes.c_void_p):
            let_go("cuGraphExecDestroy", graph)
    graphs.clear()
