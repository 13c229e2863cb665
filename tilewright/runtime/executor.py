"""A compiled model: arrays in, one native call, arrays out."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.runtime.arrays import Array, address_of
from tilewright.runtime.binding import (
    Bound,
    ListSpec,
    NativeSpec,
    StoppedError,
    TensorSpec,
    bind_outputs,
    dims_of,
    in_order,
    native_inputs,
    require_apart,
)
from tilewright.runtime.call import CallSizes, KeptCalls, ModelCall
from tilewright.runtime.crossed import NOTHING, Crossed
from tilewright.runtime.device import CPU, Device, Workers
from tilewright.runtime.dlpack import as_array
from tilewright.runtime.gpu.arrays import DeviceArray
from tilewright.runtime.lists import PassedList
from tilewright.runtime.program import Program
from tilewright.runtime.runnable import Inputs, RunnableModel
from tilewright.runtime.scratch import Scratch, take_scratch
from tilewright.runtime.small_inputs import Copies, small_inputs
from tilewright.support.denormals import Denormals
from tilewright.support.errors import UserError
from tilewright.support.timing import Timing

#: Most input shapes whose sizes are kept.
_KEPT: Final = 256
#: Types for the caller's output arrays.
_CONTAINERS: Final = (tuple, list, dict)
#: The shapes of inputs, and of the items of inputs that are lists.
_Shapes = tuple[tuple[int | tuple[int, ...], ...], ...]


class CompiledModel(RunnableModel):
    """A model as native code.

    Several threads may run it at once: each call has memory of its own.
    """

    def __init__(
        self,
        program: Program,
        constants: Sequence[Array],
        threads: int | None = None,
        *,
        why_not: str = "",
        device: Device = CPU,
    ) -> None:
        """`why_not`: the reason why this machine cannot run the code, which is then not loaded."""
        super().__init__()
        self._program, self._device = program, device
        self._constants = device.placed(constants)
        self._why_not = why_not
        self._crossed = NOTHING
        if not why_not:
            self._load()
            self.set_threads(threads)

    def _load(self) -> None:
        program = self._program
        self._address = self._device.address
        self._table = np.array([self._address(a) for a in self._constants], np.uint64)
        self._table_address = address_of(self._table)
        self._code = self._device.load(program.objects)
        entry = self._function("entry", ctypes.c_int32)
        self._entry = self._device.entered(entry, program.name)
        self._answering = self._device.answering(program.objects)
        self._workspace_size = self._function("workspace", ctypes.c_int64)
        # Never written without outputs of computed size, so all calls share it.
        self._record = np.zeros(program.record_words, np.int64)
        self._record_address = 0 if program.records else address_of(self._record)
        count = len(program.inputs) + len(program.direct) + len(program.dims) + 5
        #: Packs the words that the code takes.
        self._packed = struct.Struct(f"{count}Q").pack
        self._size = None if program.dims else self._workspace_for([])
        self._sizes: dict[_Shapes, CallSizes] = {}
        self._spare: list[Scratch] = []
        self._kept = KeptCalls()
        self._device.when_short(self._let_go)
        self._copied = small_inputs(program) if self._device.is_here else None
        handed_over = [program.outputs[k] for k in program.records]
        gives_lists = any(isinstance(s, ListSpec) for s in handed_over)
        self._release = self._function("release", None) if gives_lists else None

    def _let_go(self) -> None:
        """Release what is kept for later runs."""
        self._spare.clear()
        self._kept.clear()

    def _function(self, name: str, result: Any) -> Any:
        return self._device.function(self._code, f"{self._program.name}.{name}", result)

    @property
    def program(self) -> Program:
        """The program without its constants."""
        return self._program

    @property
    def device(self) -> Device:
        """The device that runs it."""
        return self._device

    @property
    def inputs(self) -> tuple[NativeSpec, ...]:
        return self._program.inputs

    @property
    def outputs(self) -> tuple[NativeSpec, ...]:
        return self._program.outputs

    @property
    def precision(self) -> str:
        return self._program.precision

    @property
    def denormals(self) -> Denormals:
        return self._program.denormals

    @property
    def copied(self) -> Crossed:
        return self._crossed

    @property
    def arena_bytes(self) -> int | None:
        """Bytes for intermediate values; None where only a run determines them."""
        return None if self._why_not else self._size

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        """Use `count` threads from now on (None: all cores), on the given processors.

        Runs in progress in other threads finish with the threads they started with.
        """
        self._require_loaded()
        self._pool: Workers = self._device.workers(count, affinity)

    def share_threads(self, other: CompiledModel) -> None:
        """Use the same thread pool as another model."""
        if self._device.is_here:
            self._pool = other._pool

    def with_program(self, program: Program) -> CompiledModel:
        """The model with other code, but the same constants and threads."""
        self._require_loaded()
        other = CompiledModel(program, self._constants, device=self._device)
        other.share_threads(self)
        return other

    def address(self, name: str) -> int:
        """The address of a variable or function of the loaded code."""
        self._require_loaded()
        return self._code.address(name)

    # ---- running --------------------------------------------------------------------------------

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        self._require_loaded()
        if self._copied is not None and _is_empty(out):
            small = self._copied.taken(inputs)
            if small is not None:
                return self._outputs_of_copies(*small)
        given = in_order(inputs, self._program.inputs)
        bound = self._bind(given, out)
        try:
            with self._answering:
                self._run(bound)
                results = self._device.delivered(bound.results(), given)
                self._crossed = NOTHING if bound.crossing is None else self._told(bound, results)
        except BaseException:
            self._spare.append(bound.scratch)
            raise
        if not self._kept.leave(bound):
            self._spare.append(bound.scratch)
        return results

    def _told(self, call: ModelCall, results: Sequence[Any]) -> Crossed:
        """The copies that a run made."""
        assert call.crossing is not None
        taken = zip(self._program.inputs, call.crossing.given, strict=True)
        made = zip(self._program.outputs, results, strict=True)
        return Crossed(
            {spec.name: size for spec, size in taken if size},
            {spec.name: a.nbytes for spec, a in made if isinstance(a, np.ndarray)},
        )

    def _outputs_of_copies(self, inputs: Sequence[Array], copies: Copies) -> list[Any]:
        """The outputs by way of our own arrays, whose addresses are already bound."""
        try:
            call = copies.ready.pop()
        except IndexError:
            call = self._bind(copies.arrays(), ())
        try:
            copies.copy_to(call.inputs, inputs)
            self._run(call)
            return call.copies()
        finally:
            copies.ready.append(call)

    def bound_to(self, inputs: Inputs, out: Inputs) -> BoundModel:
        self._require_loaded()
        if self._program.records:
            names = ", ".join(self.outputs[k].name for k in self._program.records)
            raise UserError(
                "cannot bind the model to arrays",
                reason=f"how large {names} gets is known only when it has run",
                remedy="use run",
            )
        given = in_order(inputs, self.inputs)
        arrays = self._device.accepted(given)
        arrays = [self._in_place(s, a) for s, a in zip(self.inputs, arrays, strict=True)]
        call = self._bind(arrays, out, copies=False)
        for number in call.filled:
            raise self._not_here(f"output {self.outputs[number].name} cannot be bound")
        return BoundModel(call, self._run, self._device, given)

    def _in_place(self, spec: NativeSpec, value: Any) -> Any:
        if self._device.is_here:
            return _in_place(spec, value)
        if not isinstance(value, DeviceArray):
            raise self._not_here(f"input {spec.name} cannot be bound")
        return value

    def _not_here(self, what: str) -> UserError:
        return UserError(
            what,
            reason=f"it does not lie on {self._device.name}, and bound models copy nothing",
            remedy="pass an array that lies there, such as a tensor of PyTorch, or use run",
        )

    def time(
        self, inputs: Inputs, repeat: int = 20, min_repeat_ms: float = 50.0, warmup: int = 2
    ) -> Timing:
        """Time the native code on these inputs: median, minimum, spread."""
        bound = self._bind(in_order(inputs, self.inputs), (), copies=False)
        if self._program.records:
            return self._device.time(lambda: self.run(inputs), repeat, min_repeat_ms, warmup)
        return self._device.time(lambda: self._run(bound), repeat, min_repeat_ms, warmup)

    def _require_loaded(self) -> None:
        if self._why_not:
            raise UserError(
                f"{self._program.name} cannot run here",
                reason=self._why_not,
                remedy="save it and load it where it can run, or compile it for target 'llvm'",
            )

    def _bind(self, inputs: Sequence[Any], out: Inputs, *, copies: bool = True) -> ModelCall:
        """A call on these inputs. Those that are not on the device are copied in each run of it, or
        just once, now."""
        self._require_loaded()
        program = self._program
        bound = native_inputs(self._device.accepted(inputs), program.inputs)
        shapes = tuple([b.shape for b in bound])
        device, address = self._device, self._address
        crossing = device.crossing(bound) if copies else None
        left = self._kept.take(bound) if crossing is not None and _is_empty(out) else None
        if left is not None:
            return left
        sizes = self._sizes.get(shapes) or self._learn(shapes, bound)
        own = () if _is_empty(out) else self._own_outputs(out, bound, sizes)
        bound = device.given(bound) if crossing is None else crossing.sent(bound)
        call = ModelCall(program, bound, sizes, own, self._record, self._release, device, crossing)
        call.words = [
            *[b.address if isinstance(b, PassedList) else address(b) for b in bound],
            *map(address, call.direct),
            self._table_address,
            self._record_address or address_of(call.record),
            *sizes.words,
        ]
        call.scratch = take_scratch(self._spare, sizes.workspace, device.scratch)
        return call

    def _own_outputs(
        self, out: Inputs, inputs: Sequence[Bound], sizes: CallSizes
    ) -> list[Array | None]:
        """The caller's arrays for outputs, checked."""
        program = self._program
        own = bind_outputs(
            self._accepted_outputs(out), program.outputs, sizes.dims, program.records
        )
        require_apart(inputs, program.inputs, own, program.outputs)
        return own

    def _accepted_outputs(self, out: Inputs) -> Inputs:
        """The output arrays, with those already on the device wrapped as its arrays."""
        if self._device.is_here or not isinstance(out, _CONTAINERS):
            return out
        values = list(out.values()) if isinstance(out, Mapping) else list(out)
        accepted = self._device.accepted_outputs(values)
        return dict(zip(out, accepted, strict=True)) if isinstance(out, Mapping) else accepted

    def _learn(self, shapes: _Shapes, bound: Sequence[Bound]) -> CallSizes:
        """The sizes that follow from new input shapes."""
        program = self._program
        dims = dims_of(bound, program.inputs)
        numbers = [_size_of(d, dims) for d in program.dims]
        outputs = [s.sizes(dims) if isinstance(s, TensorSpec) else () for s in program.outputs]
        found = CallSizes(dims, numbers, self._workspace_for(numbers), outputs)
        if len(self._sizes) >= _KEPT:
            self._sizes.clear()
        self._sizes[shapes] = found
        if self._copied is not None and program.dims:
            self._copied.learn(shapes, [outputs[k] for k in program.direct], found.workspace)
        return found

    def _workspace_for(self, numbers: Sequence[int]) -> int:
        """The bytes of workspace for a run with these dimensions."""
        program = self._program
        unused = [0] * (len(program.inputs) + len(program.direct) + 2)
        return self._workspace_size(self._packed(*unused, *numbers, 0, 0, 0))

    def _run(self, call: ModelCall) -> None:
        # The pool must outlive the run: `set_threads` may replace the model's pool meanwhile.
        pool, own = self._pool, call.scratch
        if call.pool != pool.address:
            scratch = own.workspace, own.error_address
            call.packed = self._packed(*call.words, pool.address, *scratch)
            call.pool = pool.address
        copies = call.crossing
        code: int = self._entry(call.packed) if copies is None else self._entry(call.packed, copies)
        if not code:
            return
        error, origins = call.scratch.error, self._program.origins
        reason = self._program.messages[code - 1].format(*map(int, error[1:5]))
        number = int(error[5])
        error[:] = 0
        origin = origins[number - 1] if 0 < number <= len(origins) else ""
        where = f" at {origin}" if origin else ""
        raise StoppedError(f"{self._program.name} stopped{where}", reason=reason)


class BoundModel:
    """A model bound to arrays: a call runs it on the contents of `inputs`, and fills `outputs`.

    It is for one thread at a time; bind the model again for another.
    """

    def __init__(
        self,
        call: ModelCall,
        run: Callable[[ModelCall], None],
        device: Device,
        given: Sequence[Any],
    ) -> None:
        self._call, self._run, self._device = call, run, device
        self.inputs: list[Any] = [b for b in call.inputs if isinstance(b, np.ndarray)]
        self.outputs: list[Any] = call.results()
        if not device.is_here:
            self.inputs = list(given)
            self.outputs = device.delivered(self.outputs, given)

    def __call__(self) -> list[Any]:
        self._device.follow([*self.inputs, *self.outputs])
        self._run(self._call)
        self._device.lead(self.outputs)
        return self.outputs


def _is_empty(out: Inputs) -> bool:
    return isinstance(out, _CONTAINERS) and not out


def _size_of(dim: str, dims: dict[str, int]) -> int:
    if dim not in dims:
        reason = "the sequences are empty"
        raise UserError(f"no input determines the dimension {dim}", reason=reason)
    return dims[dim]


def _in_place(spec: NativeSpec, value: Any) -> Array:
    array = as_array(value) if isinstance(spec, TensorSpec) else None
    if array is None or not (array.flags.c_contiguous and array.flags.aligned):
        raise UserError(
            f"input {spec.name} cannot be bound",
            reason="it is no array without gaps, so that what it holds later would not be seen",
            remedy="pass np.ascontiguousarray of it, and write to that",
        )
    return array
