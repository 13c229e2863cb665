"""Single kernels in a session: called, and timed alternately."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, Final

import numpy as np

from tilewright.models.native import why_not
from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.requests import Request
from tilewright.rpc.wire.signatures import kernel_from
from tilewright.rpc.wire.values import Packed, unpacked
from tilewright.runtime import (
    ArrayParam,
    KernelCode,
    NativeFunction,
    device_for,
    install,
    is_installed,
)
from tilewright.support.errors import UserError
from tilewright.support.timing import interleaved

_MOST_KERNELS: Final = 4096


class Kernels:
    """The kernels loaded by a client, by number."""

    def __init__(self) -> None:
        self._held: dict[int, NativeFunction] = {}
        self._count = 0

    def load(self, request: Request, out: Packed) -> dict[str, Any]:
        """Load a kernel; the two arrays are its object code and the thread pool's."""
        del out
        if len(request.arrays) != 2:
            raise ProtocolError("a message is damaged", reason="a kernel has no code")
        if len(self._held) >= _MOST_KERNELS:
            reason = f"there are {_MOST_KERNELS} kernels"
            raise UserError("there is no room for the kernel on this device", reason=reason)
        code, pool = (array.tobytes() for array in request.arrays)
        self._count += 1
        self._held[self._count] = _loaded(kernel_from(request, code, pool))
        return {"kernel": self._count}

    def unload(self, request: Request, out: Packed) -> dict[str, Any]:
        del out
        self._get(request.natural("kernel"))
        del self._held[request.natural("kernel")]
        return {}

    def call(self, request: Request, out: Packed) -> dict[str, Any]:
        """Run a kernel; the arrays it writes are returned."""
        kernel = self._get(request.natural("kernel"))
        arguments = _arguments(request)
        kernel(*arguments)
        pairs = zip(kernel.signature.params, arguments, strict=True)
        written = [a for p, a in pairs if isinstance(p, ArrayParam) and p.is_written]
        return {"written": [out.tree(a) for a in written]}

    def measure(self, request: Request, out: Packed) -> dict[str, Any]:
        """Time kernels alternately, on common arguments or each on its own: a row of seconds for
        each."""
        kernels = [self._get(number) for number in request.naturals("kernels")]
        each = _argument_sets(request, len(kernels))
        calls = [
            _in_turn([kernel.prepared(*arguments) for arguments in sets])
            for kernel, sets in zip(kernels, each, strict=True)
        ]
        rounds, least = max(1, request.natural("rounds")), request.number("min_repeat_ms")
        found = interleaved(calls, rounds, least, request.natural("warmup"))
        samples = np.array([timing.samples for timing in found])
        return {"samples": out.tree(samples), "calls": [timing.calls for timing in found]}

    def _get(self, number: int) -> NativeFunction:
        if number not in self._held:
            raise ProtocolError("a message is out of order", reason=f"there is no kernel {number}")
        return self._held[number]


def _loaded(kernel: KernelCode) -> NativeFunction:
    reason = why_not(kernel.target)
    device = device_for("llvm") if reason else device_for(kernel.target.kind)
    if reason or not device.is_here:
        raise UserError(
            f"{kernel.signature.name} cannot run on this device",
            reason=reason or f"kernels are called on processors, not on {device.name}",
            remedy="build it for the target of the device",
        )
    if not is_installed():
        install(kernel.pool)
    threads = kernel.threads
    return NativeFunction(kernel.object_code, kernel.signature, kernel.messages, threads, device)


def _arguments(request: Request) -> list[Any]:
    return _list(unpacked(request.fields.get("arguments"), request.arrays))


def _argument_sets(request: Request, kernels: int) -> list[list[list[Any]]]:
    """For each kernel, the sets of arguments that its calls cycle through."""
    if "arguments" in request.fields:
        return [[_arguments(request)]] * kernels
    each = _list(unpacked(request.fields.get("each"), request.arrays))
    found = [[_list(arguments) for arguments in _list(sets)] for sets in each]
    if len(found) != kernels or not all(found):
        raise ProtocolError("a message is damaged", reason="a kernel has no arguments")
    return found


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ProtocolError("a message is damaged", reason="there are no arguments")
    return value  # pyright: ignore[reportUnknownVariableType]


def _in_turn(calls: list[Callable[[], None]]) -> Callable[[], None]:
    """A function that calls these functions in a cycle."""
    order = cycle(calls)
    return calls[0] if len(calls) == 1 else lambda: next(order)()
