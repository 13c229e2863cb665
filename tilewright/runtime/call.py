"""One run of a compiled model: its arguments and its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from tilewright.runtime.arrays import Array, result_empty
from tilewright.runtime.binding import Bound, NativeSpec, StoppedError, TensorSpec
from tilewright.runtime.device import Device
from tilewright.runtime.lists import copied_items
from tilewright.runtime.program import Program
from tilewright.runtime.scratch import Scratch
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.runtime.gpu.crossing import Crossing


_Shapes = tuple[tuple[int, ...], ...]
#: Most shapes of inputs for which calls are kept.
_MOST_KEPT: Final = 4


class CallSizes(NamedTuple):
    """Sizes that follow from the shapes of the inputs."""

    dims: dict[str, int]
    #: The dimensions, in the code's order.
    words: list[int]
    #: Bytes of memory for intermediate values.
    workspace: int
    #: The shapes of the outputs, as far as they are known before the run.
    outputs: Sequence[Sequence[int]]


class ModelCall:
    """One run: its arrays, and the words passed to the code."""

    #: Addresses and dimensions; the words for threads and scratch memory follow.
    words: list[int]
    scratch: Scratch
    #: All words as bytes, and the address of the thread pool in them.
    packed: bytes
    pool: int | None = None

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Bound],
        sizes: CallSizes,
        own: Sequence[Array | None],
        record: Array,
        release: Callable[[int], None] | None,
        device: Device,
        crossing: Crossing | None = None,
    ) -> None:
        self._program, self._release, self._device = program, release, device
        self.record = record.copy() if program.records else record
        self.inputs, self.crossing = inputs, crossing
        #: Host arrays of the caller's to copy outputs to, by number.
        self.filled: dict[int, Array] = {}
        #: Staging arrays that the run copies outputs to, by number.
        self._brought: dict[int, Array] = {}
        placed: dict[int, Any] = {}
        if crossing is not None:
            placed = self._crossing(crossing, sizes, own)
        self.direct: list[Array] = []
        for k in program.direct:
            array: Any = placed.get(k, own[k] if own else None)
            spec = program.outputs[k]
            if not device.is_here and isinstance(array, np.ndarray):
                self.filled[k], array = cast("Array", array), None
            if array is None:
                assert isinstance(spec, TensorSpec)
                array = _empty(device, spec, sizes.outputs[k])
            self.direct.append(array)

    def _crossing(
        self, crossing: Crossing, sizes: CallSizes, own: Sequence[Array | None]
    ) -> dict[int, Any]:
        """Arrays on the device for outputs that the run copies to the host, by number."""
        given = {k: own[k] if own else None for k in self._program.direct}
        wanted = [k for k, a in given.items() if _comes_back(a, crossing)]
        plain = [(sizes.outputs[k], self._program.outputs[k].numpy) for k in wanted]
        places = crossing.fetched(plain) if all(_is_possible(shape) for shape, _ in plain) else None
        if places is None:
            return {}
        there, here = places
        self._brought = dict(zip(wanted, here, strict=True))
        self.filled = {k: a for k in wanted if (a := given[k]) is not None}
        return dict(zip(wanted, there, strict=True))

    @property
    def is_copied(self) -> bool:
        """Whether the run copies all inputs and outputs, and uses no array of the caller's."""
        all_come = len(self._brought) == len(self.direct) == len(self._program.outputs)
        return (
            self.crossing is not None and self.crossing.sends_all and all_come and not self.filled
        )

    def copies(self) -> list[Any]:
        """All outputs in order, in new arrays: another run may use those of the call."""
        if not self._program.records:
            return [array.copy() for array in self.direct]
        made = self.results()
        for k in self._program.direct:
            made[k] = made[k].copy()
        return made

    def results(self) -> list[Any]:
        """All outputs in order."""
        if self._brought:
            self._device.check()
        if not self._program.records:
            return [
                self._given(k, a) for k, a in zip(self._program.direct, self.direct, strict=True)
            ]
        outputs, records = self._program.outputs, self._program.records
        made: list[Any] = [None] * len(outputs)
        for k, array in zip(self._program.direct, self.direct, strict=True):
            made[k] = self._given(k, array)
        handed_over: list[int] = self.record.tolist()
        try:
            for k, at in records.items():
                made[k] = self._copied(outputs[k], handed_over, at)
        finally:
            for k, at in records.items():
                self._give_back(outputs[k], handed_over[at])
        return made

    def _given(self, number: int, array: Any) -> Any:
        """An output, in the caller's array if there is one."""
        own, brought = self.filled.get(number), self._brought.get(number)
        if brought is not None:
            made = result_empty(brought.shape, brought.dtype) if own is None else own
            made[...] = brought
            return made
        if own is None:
            return array
        array.copy_to(own)
        return own

    def _copied(self, spec: NativeSpec, handed_over: list[int], at: int) -> Any:
        """A copy of an output in memory that the code allocated."""
        address = handed_over[at]
        if isinstance(spec, TensorSpec):
            shape = handed_over[at + 1 : at + 1 + len(spec.shape)]
            return self._device.copied(address, shape, spec.numpy)
        if not address:
            return None
        items = copied_items(address, spec.dtype.numpy)
        return items[0] if spec.kind == "opt" else items

    def _give_back(self, spec: NativeSpec, address: int) -> None:
        if isinstance(spec, TensorSpec):
            self._device.free(address)
        elif self._release is not None:
            self._release(address)


class KeptCalls:
    """Calls that no run uses now, by the shapes of their inputs. Another run with these shapes only
    copies its inputs, without binding."""

    def __init__(self) -> None:
        self._calls: dict[_Shapes, list[ModelCall]] = {}

    def leave(self, call: ModelCall) -> bool:
        """Keep a finished call, if it refers to no array of the caller's."""
        if not call.is_copied:
            return False
        shapes = _shapes_of(call.inputs)
        if len(self._calls) >= _MOST_KEPT and shapes not in self._calls:
            self._calls.clear()
        self._calls.setdefault(shapes, []).append(call)
        return True

    def clear(self) -> None:
        """Release all calls."""
        self._calls.clear()

    def take(self, inputs: Sequence[Any]) -> ModelCall | None:
        """A kept call for these host arrays, with its inputs copied; None if there is none."""
        calls = self._calls.get(_shapes_of(inputs))
        if not calls or not all(isinstance(a, np.ndarray) for a in inputs):
            return None
        try:
            call = calls.pop()
        except IndexError:  # another thread has taken it
            return None
        assert call.crossing is not None
        call.crossing.take(inputs)
        return call


def _shapes_of(inputs: Sequence[Any]) -> _Shapes:
    return tuple([a.shape for a in inputs])


def _comes_back(own: Any, crossing: Crossing) -> bool:
    """Whether an output is copied to the host; `own` is the caller's array, if any."""
    return crossing.brings_back if own is None else isinstance(own, np.ndarray)


def _is_possible(shape: Sequence[int]) -> bool:
    return all(extent >= 0 for extent in shape)


def _empty(device: Device, spec: TensorSpec, shape: Sequence[int]) -> Array:
    if not _is_possible(shape):
        raise StoppedError(
            "the model does not take inputs of these sizes",
            reason=f"output {spec.name} would be {spec.dtype.name}{list(shape)}",
        )
    try:
        return device.result(shape, spec.numpy)
    except UserError:
        raise  # a device's own message has the memory available
    except (MemoryError, ValueError):
        size = math.prod(shape) * spec.numpy.itemsize
        raise UserError(
            f"there is no memory for output {spec.name}",
            reason=f"{spec.dtype.name}{list(shape)} takes {size} bytes",
        ) from None
