"""A CUDA graph in the making: what a stream is told, ordered by the memory that it touches."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from tilewright.runtime.gpu.ordering import Ordering, Touched
from tilewright.support.libcuda import call

#: How capturing treats calls of other threads.
_RELAXED: Final = 2
#: Nodes to wait for take the place of others, rather than joining them.
_SET: Final = 1


class Capture:
    """What is added to a stream from here on becomes a graph.

    A stream orders all that it is told; here each launch waits only for those that it must. So
    launches that do not depend on each other run side by side.
    """

    def __init__(self, stream: ctypes.c_void_p) -> None:
        self._stream = stream
        self._ordering = Ordering()
        #: The last node of each launch.
        self._nodes: list[int] = []
        call("cuStreamBeginCapture_v2", stream, _RELAXED)

    @contextmanager
    def adding(self, touched: Touched) -> Generator[None]:
        """Around calls that add to the stream what touches some memory."""
        self._wait_for(self._ordering.add(touched))
        yield
        self._nodes.append(self._last())

    def _wait_for(self, launches: Sequence[int]) -> None:
        """Let what comes next wait for these alone."""
        nodes = (ctypes.c_void_p * len(launches))(*(self._nodes[k] for k in launches))
        count = ctypes.c_size_t(len(launches))
        call("cuStreamUpdateCaptureDependencies", self._stream, nodes, count, _SET)

    def fence(self) -> None:
        """What is added from here on waits for all that was added before."""
        self._ordering.fence()

    def join(self) -> None:
        """What comes behind the graph waits for all of it."""
        if self._nodes:
            self._wait_for(self._ordering.last())

    def _last(self) -> int:
        """The node that was added last: the only one that the stream would wait for."""
        status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        nodes, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        places = map(ctypes.byref, (status, number, graph, nodes, count))
        call("cuStreamGetCaptureInfo_v2", self._stream, *places)
        assert count.value == 1, "a stream waits for what was added to it last"
        return nodes[0]

    def end(self) -> ctypes.c_void_p:
        """The graph."""
        graph = ctypes.c_void_p()
        call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        return graph
