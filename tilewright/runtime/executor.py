"""A compiled model: arrays in, one native call, arrays out."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.runtime.binding import Array, TensorSpec, bind_inputs, bind_outputs, in_order
from tilewright.runtime.function import Scratch, take_scratch
from tilewright.runtime.jit import LoadedCode
from tilewright.runtime.runnable import Inputs, RunnableModel
from tilewright.runtime.threads import Pool, pool_for, symbols
from tilewright.support.errors import UserError
from tilewright.support.timing import Timing, measure

_ALIGNMENT = 64
#: Constants that are not aligned are copied up to so many bytes; large models keep theirs.
_COPY_LIMIT = 512 << 20


@dataclass(frozen=True)
class Program:
    """All that is needed to run a model, as plain data."""

    name: str
    objects: tuple[bytes, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    #: The symbolic dimensions, in the order in which the code takes them.
    dims: tuple[str, ...]
    #: The outputs that the code writes to memory of the caller's, by number.
    direct: tuple[int, ...]
    #: The others: where in the record the address of each stands, before its dimensions.
    records: Mapping[int, int]
    messages: tuple[str, ...]
    #: Where in the model each call of a kernel comes from, in order.
    origins: tuple[str, ...] = ()


class CompiledModel(RunnableModel):
    """A model as native code.

    Several threads may run it at once: each call has memory of its own.
    """

    def __init__(
        self, program: Program, constants: Sequence[Array], threads: int | None = None
    ) -> None:
        super().__init__()
        self._program = program
        self._constants = _aligned_all(constants)
        self._table = np.array([a.ctypes.data for a in self._constants], np.uint64)
        self._code = LoadedCode(program.objects, symbols())
        self._entry = self._function("entry", ctypes.c_int32)
        self._workspace_size = self._function("workspace", ctypes.c_int64)
        self._record_size = 1 + sum(1 + len(s.shape) for s in program.outputs)
        self._spare: list[Scratch] = []
        self.set_threads(threads)

    def _function(self, name: str, result: Any) -> Any:
        address = self._code.address(f"{self._program.name}.{name}")
        return ctypes.CFUNCTYPE(result, ctypes.c_void_p)(address)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._program.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._program.outputs

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        """Use `count` threads from now on (None: all cores), on the given processors."""
        self._pool: Pool = pool_for(count, affinity)

    # ---- running --------------------------------------------------------------------------------

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        bound = self._bind(in_order(inputs, self.inputs), out)
        try:
            self._run(bound)
            return bound.results()
        finally:
            self._spare.append(bound.scratch)

    def time(
        self, inputs: Inputs, repeat: int = 20, min_repeat_ms: float = 50.0, warmup: int = 2
    ) -> Timing:
        """Time the native code on these inputs: median, least, spread."""
        bound = self._bind(in_order(inputs, self.inputs), ())
        if self._program.records:
            return measure(lambda: self.run(inputs), repeat, min_repeat_ms, warmup)
        return measure(lambda: self._run(bound), repeat, min_repeat_ms, warmup)

    def _bind(self, inputs: Sequence[Any], out: Inputs) -> _Call:
        program = self._program
        arrays, dims = bind_inputs(inputs, program.inputs)
        own = bind_outputs(out, program.outputs, dims) if out else [None] * len(program.outputs)
        call = _Call(program, arrays, dims, own, self._record_size)
        memory = [*arrays, *call.direct, self._table, call.record]
        numbers = [dims[d] for d in program.dims]
        words = (ctypes.c_uint64 * (len(memory) + len(numbers) + 3))()
        words[: len(memory)] = [a.ctypes.data for a in memory]
        words[len(memory) : -3] = numbers
        call.scratch = take_scratch(self._spare, self._workspace_size(words))
        scratch = call.scratch
        words[-3:] = [self._pool.address, scratch.workspace, scratch.error_address]
        call.words = words
        return call

    def _run(self, call: _Call) -> None:
        code: int = self._entry(call.words)
        if not code:
            return
        error, origins = call.scratch.error, self._program.origins
        reason = self._program.messages[code - 1].format(*map(int, error[1:5]))
        number = int(error[5])
        error[:] = 0
        origin = origins[number - 1] if 0 < number <= len(origins) else ""
        where = f" at {origin}" if origin else ""
        raise UserError(f"{self._program.name} stopped{where}", reason=reason)


class _Call:
    """One run: its arrays, and the words that the code takes."""

    words: Any
    scratch: Scratch

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Array],
        dims: dict[str, int],
        own: Sequence[Array | None],
        record_size: int,
    ) -> None:
        self._program = program
        self.record = np.zeros(record_size, np.int64)
        self.inputs = inputs
        self.direct: list[Array] = []
        for k in program.direct:
            array = own[k]
            self.direct.append(_empty(program.outputs[k], dims) if array is None else array)

    def results(self) -> list[Array]:
        """All outputs in order."""
        made = dict(zip(self._program.direct, self.direct, strict=True))
        for k, at in self._program.records.items():
            made[k] = self._taken_over(self._program.outputs[k], at)
        return [made[k] for k in range(len(made))]

    def _taken_over(self, spec: TensorSpec, at: int) -> Array:
        """A copy of memory that the code handed over; the memory goes back."""
        address, *shape = (int(v) for v in self.record[at : at + 1 + len(spec.shape)])
        array = np.empty(shape, spec.numpy)
        ctypes.memmove(array.ctypes.data, address, math.prod(shape) * spec.numpy.itemsize)
        _free(address)
        return array


def _empty(spec: TensorSpec, dims: dict[str, int]) -> Array:
    shape = spec.static_shape
    return np.empty(spec.sizes(dims) if shape is None else shape, spec.numpy)


def _aligned_all(arrays: Sequence[Array]) -> list[Array]:
    """The arrays without gaps, and where vectors are loaded best, as far as copies are worth it."""
    left = _COPY_LIMIT
    result: list[Array] = []
    for array in arrays:
        if not _is_aligned(array) and (array.nbytes <= left or not array.flags.c_contiguous):
            left -= array.nbytes
            array = _aligned(array)
        result.append(array)
    return result


def _is_aligned(array: Array) -> bool:
    return array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0


def _aligned(array: Array) -> Array:
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _free(address: int) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    free(address)
