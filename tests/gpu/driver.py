"""A driver that only writes down what it is asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tilewright.support import libcuda


class Driver:
    """Stands for `libcuda`: a graph's nodes are the numbers from 1 on, with those they wait for."""

    def __init__(self) -> None:
        self.graph: list[tuple[str, tuple[int, ...]]] = []
        self.launched: list[int] = []
        #: How nodes wait for others, where that is said; and the shared memory of launches.
        self.edges: list[dict[int, tuple[int, int]]] = []
        self.shared: list[int] = []
        self.version = 13000
        self._waits: tuple[int, ...] = ()
        self._capturing = False
        self._held: list[Any] = []

    def __getitem__(self, name: str) -> Callable[..., int]:
        return getattr(self, name, lambda *_: 0)

    def _add(self, kind: str) -> int:
        if self._capturing:
            self.graph.append((kind, self._waits))
            self._waits = (len(self.graph),)
        return 0

    def cuMemHostAlloc(self, place: Any, size: Any, _: int) -> int:
        self._held.append(ctypes.create_string_buffer(size.value))
        place._obj.value = ctypes.addressof(self._held[-1])
        return 0

    def cuStreamBeginCapture_v2(self, *_: Any) -> int:
        self._capturing, self._waits = True, ()
        return 0

    def cuStreamEndCapture(self, *_: Any) -> int:
        waited = {k for _, waits in self.graph for k in waits}
        assert set(self._waits) == {*range(1, len(self.graph) + 1)} - waited, "all is joined"
        self._capturing = False
        return 0

    def cuStreamUpdateCaptureDependencies(self, _: Any, nodes: Any, count: Any, flags: int) -> int:
        assert self._capturing and flags == 1
        self._waits = tuple(nodes[k] for k in range(count.value))
        return 0

    def cuStreamUpdateCaptureDependencies_v2(
        self, stream: Any, nodes: Any, edges: Any, count: Any, flags: int
    ) -> int:
        found = [(nodes[k], (edges[k].from_port, edges[k].type)) for k in range(count.value)]
        self.edges.append(dict(found))
        return self.cuStreamUpdateCaptureDependencies(stream, nodes, count, flags)

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self.version
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, _: int) -> int:
        value._obj.value = {libcuda.MULTIPROCESSORS: 100, libcuda.SHARED_IN_ALL: 228 << 10}[number]
        return 0

    def cuStreamGetCaptureInfo_v2(self, _: Any, *places: Any) -> int:
        *_, nodes, count = (p._obj for p in places)
        self._held.append((ctypes.c_void_p * len(self._waits))(*self._waits))
        nodes.contents = ctypes.cast(self._held[-1], ctypes.POINTER(ctypes.c_void_p)).contents
        count.value = len(self._waits)
        return 0

    def cuGraphInstantiateWithFlags(self, made: Any, *_: Any) -> int:
        made._obj.value = 77
        return 0

    def cuGraphLaunch(self, graph: Any, _: Any) -> int:
        self.launched.append(graph.value)
        return 0

    def cuLaunchKernel(self, *args: Any) -> int:
        self.shared.append(args[7])
        return self._add("kernel")

    def cuLaunchCooperativeKernel(self, *_: Any) -> int:
        return self._add("together")

    def cuMemAlloc_v2(self, place: Any, size: Any) -> int:
        return self.cuMemHostAlloc(place, size, 0)

    def cuMemcpyDtoDAsync_v2(self, *_: Any) -> int:
        return self._add("copy")

    def cuMemcpyHtoDAsync_v2(self, *_: Any) -> int:
        return self._add("there")

    def cuMemcpyDtoHAsync_v2(self, *_: Any) -> int:
        return self._add("back")

    def cuMemsetD8Async(self, *_: Any) -> int:
        return self._add("set")


def forget_driver() -> None:
    for found_once in (libcuda.has_early_launches, libcuda._function):
        found_once.cache_clear()
