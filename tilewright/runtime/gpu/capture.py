"""Captures a stream as a CUDA graph, whose launches are ordered by the memory they touch."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from tilewright.runtime.gpu.calls import Calls
from tilewright.runtime.gpu.ordering import Ordering, Touched
from tilewright.support.libcuda import has_early_launches

#: CU_STREAM_CAPTURE_MODE_RELAXED: other threads may call anything meanwhile.
_RELAXED: Final = 2
#: Replace the dependencies, instead of adding to them.
_SET: Final = 1


class _Edge(ctypes.Structure):
    """A dependency of a node on another: the driver's `CUgraphEdgeData`."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


#: Edges that wait for a node's end; or until its kernel lets dependent ones start.
_ENDED: Final = (0, 0, 0)
_BEGUN: Final = (1, 0, 1)


class Capture:
    """What is added to a stream from here on becomes a graph.

    A stream orders everything; in the graph each launch waits only for those it depends on, so that
    independent launches run in parallel. Of two kernels that wait by themselves, the second starts
    while the first runs, which hides the launch latency.
    """

    def __init__(self, stream: ctypes.c_void_p, call: Calls) -> None:
        self._stream, self._call = stream, call
        self._ordering = Ordering()
        #: The last node of each launch.
        self._nodes: list[int] = []
        #: Whether each of them lets dependent ones start early.
        self._early: list[bool] = []
        self._call("cuStreamBeginCapture_v2", stream, _RELAXED)

    @contextmanager
    def adding(self, touched: Touched, *, early: bool = False) -> Generator[None]:
        """Around calls that add a launch which touches some memory; `early` is for a kernel that
        waits by itself for its predecessors."""
        self._wait_for(self._ordering.add(touched), early=early)
        yield
        self._nodes.append(self._last())
        self._early.append(early)

    def _wait_for(self, launches: Sequence[int], *, early: bool = False) -> None:
        """Let the next launch wait for only these."""
        nodes = (ctypes.c_void_p * len(launches))(*(self._nodes[k] for k in launches))
        count = ctypes.c_size_t(len(launches))
        if not early or not has_early_launches():
            self._call("cuStreamUpdateCaptureDependencies", self._stream, nodes, count, _SET)
            return
        kinds = [_BEGUN if self._early[k] else _ENDED for k in launches]
        edges = (_Edge * len(launches))(*(_Edge(*kind) for kind in kinds))
        self._call("cuStreamUpdateCaptureDependencies_v2", self._stream, nodes, edges, count, _SET)

    def fence(self) -> None:
        """Let all later launches wait for all earlier ones."""
        self._ordering.fence()

    def join(self) -> None:
        """Let work after the graph wait for all of it."""
        if self._nodes:
            self._wait_for(self._ordering.last())

    def _last(self) -> int:
        """The node added last, which is the stream's only dependency."""
        status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        nodes, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        places = map(ctypes.byref, (status, number, graph, nodes, count))
        self._call("cuStreamGetCaptureInfo_v2", self._stream, *places)
        assert count.value == 1, "a stream waits for what was added to it last"
        return nodes[0]

    def end(self) -> ctypes.c_void_p:
        """The graph."""
        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        return graph
