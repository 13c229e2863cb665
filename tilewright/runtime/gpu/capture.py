"""A CUDA graph in the making: what a stream is told, ordered by the memory that it touches."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from tilewright.runtime.gpu.calls import Calls
from tilewright.runtime.gpu.ordering import Ordering, Touched
from tilewright.support.libcuda import has_early_launches

#: How capturing treats calls of other threads.
_RELAXED: Final = 2
#: Nodes to wait for take the place of others, rather than joining them.
_SET: Final = 1


class _Edge(ctypes.Structure):
    """How a node waits for another: the driver's `CUgraphEdgeData`."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


#: For its end; and for its kernel to say that those after it may begin, and wait by themselves.
_ENDED: Final = (0, 0, 0)
_BEGUN: Final = (1, 0, 1)


class Capture:
    """What is added to a stream from here on becomes a graph.

    A stream orders all that it is told; here each launch waits only for those that it must. So
    launches that do not depend on each other run side by side. Of two kernels that wait by
    themselves, the second begins while the first runs, so that beginning costs no time.
    """

    def __init__(self, stream: ctypes.c_void_p, call: Calls) -> None:
        self._stream, self._call = stream, call
        self._ordering = Ordering()
        #: The last node of each launch.
        self._nodes: list[int] = []
        #: Whether each of them lets others begin early.
        self._early: list[bool] = []
        self._call("cuStreamBeginCapture_v2", stream, _RELAXED)

    @contextmanager
    def adding(self, touched: Touched, *, early: bool = False) -> Generator[None]:
        """Around calls that add to the stream what touches some memory; `early` is a kernel that
        waits by itself for those before."""
        self._wait_for(self._ordering.add(touched), early=early)
        yield
        self._nodes.append(self._last())
        self._early.append(early)

    def _wait_for(self, launches: Sequence[int], *, early: bool = False) -> None:
        """Let what comes next wait for these alone."""
        nodes = (ctypes.c_void_p * len(launches))(*(self._nodes[k] for k in launches))
        count = ctypes.c_size_t(len(launches))
        if not early or not has_early_launches():
            self._call("cuStreamUpdateCaptureDependencies", self._stream, nodes, count, _SET)
            return
        kinds = [_BEGUN if self._early[k] else _ENDED for k in launches]
        edges = (_Edge * len(launches))(*(_Edge(*kind) for kind in kinds))
        self._call("cuStreamUpdateCaptureDependencies_v2", self._stream, nodes, edges, count, _SET)

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
        self._call("cuStreamGetCaptureInfo_v2", self._stream, *places)
        assert count.value == 1, "a stream waits for what was added to it last"
        return nodes[0]

    def end(self) -> ctypes.c_void_p:
        """The graph."""
        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        return graph
