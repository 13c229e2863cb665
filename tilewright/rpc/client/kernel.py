"""A kernel on another machine, with the interface of a local one."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.rpc.wire.signatures import kernel_data
from tilewright.rpc.wire.values import Packed, unpacked
from tilewright.runtime import ArrayParam, KernelCode, Signature
from tilewright.support.errors import UserError
from tilewright.support.timing import Timing

if TYPE_CHECKING:
    from tilewright.rpc.client.device import Device


class RemoteKernel:
    """One kernel in a session of a device; in a new session it is sent again."""

    def __init__(self, device: Device, code: KernelCode) -> None:
        self.device, self._code = device, code
        self._epoch = self._number = 0
        self.number()

    @property
    def signature(self) -> Signature:
        return self._code.signature

    def number(self) -> int:
        """Its number in the session, to which it is sent if necessary."""
        if self._epoch != self.device.epoch or not self.device.is_open:
            packed = Packed()
            for part in (self._code.object_code, self._code.pool):
                packed.tree(np.frombuffer(part, np.uint8))
            answer, _ = self.device.call("load_kernel", kernel_data(self._code), packed)
            self._number, self._epoch = int(answer["kernel"]), self.device.epoch
            unload = ("unload_kernel", "kernel", self._number)
            weakref.finalize(self, self.device.unused.append, (self._epoch, *unload))
        return self._number

    def __call__(self, *args: Any) -> None:
        """Run it on the device; arrays that it writes are copied back."""
        bound, _ = self.signature.bind(args)
        packed = Packed()
        fields = {"kernel": self.number(), "arguments": [packed.tree(a) for a in bound]}
        answer, arrays = self.device.call("call_kernel", fields, packed)
        pairs = zip(self.signature.params, bound, strict=True)
        own = [a for p, a in pairs if isinstance(p, ArrayParam) and p.is_written]
        for array, tree in zip(own, answer["written"], strict=True):
            array[...] = unpacked(tree, arrays)

    def time(
        self, *args: Any, repeat: int = 20, min_repeat_ms: float = 50.0, warmup: int = 2
    ) -> Timing:
        """Time the native code on the device, without communication."""
        return measured([self], args, repeat, min_repeat_ms, warmup)[0]

    def __repr__(self) -> str:
        return f"<RemoteKernel {self.signature.name} on {self.device.name}>"


def measured(
    kernels: Sequence[RemoteKernel],
    args: Sequence[Any],
    rounds: int,
    min_repeat_ms: float,
    warmup: int,
) -> list[Timing]:
    """Times of kernels of one device on the same arguments, called alternately."""
    packed = Packed()
    for kernel in kernels:
        kernel.signature.bind(args)
    given = {"arguments": [packed.tree(a) for a in args]}
    return _measured(kernels, given, packed, rounds, min_repeat_ms, warmup) if kernels else []


def measured_apart(
    kernels: Sequence[RemoteKernel],
    each: Sequence[Sequence[Sequence[Any]]],
    rounds: int,
    min_repeat_ms: float,
    warmup: int,
) -> list[Timing]:
    """The same, with each kernel cycling through its own sets of arguments. Arguments shared by
    sets are sent once."""
    packed, trees = Packed(), dict[int, Any]()
    for argument in (a for sets in each for arguments in sets for a in arguments):
        if id(argument) not in trees:
            trees[id(argument)] = packed.tree(argument)
    given = {"each": [[[trees[id(a)] for a in args] for args in sets] for sets in each]}
    return _measured(kernels, given, packed, rounds, min_repeat_ms, warmup)


def _measured(
    kernels: Sequence[RemoteKernel],
    given: dict[str, Any],
    packed: Packed,
    rounds: int,
    min_repeat_ms: float,
    warmup: int,
) -> list[Timing]:
    device = kernels[0].device
    if any(kernel.device is not device for kernel in kernels):
        raise UserError("kernels can be measured together only on one device")
    fields = {
        "kernels": [kernel.number() for kernel in kernels],
        **given,
        "rounds": rounds,
        "min_repeat_ms": min_repeat_ms,
        "warmup": warmup,
    }
    answer, arrays = device.call("measure", fields, packed)
    rows = unpacked(answer["samples"], arrays).tolist()
    return [Timing(tuple(row), int(n)) for row, n in zip(rows, answer["calls"], strict=True)]
