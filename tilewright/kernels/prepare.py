"""Runs the kernels' work on constants once: weights are packed before the first inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph import Array, Binding, KernelCall, TensorType, Value, dtype_of
from tilewright.ir import DType, Var
from tilewright.kernels.compiled import CompiledKernel, Preparation
from tilewright.kernels.module import install_threadpool
from tilewright.runtime import (
    ArrayParam,
    LastingMemory,
    NativeFunction,
    ScalarParam,
    Signature,
    let_go,
)
from tilewright.support.dtype import index
from tilewright.support.faults import during

_Key = tuple[str, tuple[int, ...]]


def prepare_calls(
    calls: Mapping[Binding, KernelCall],
    kernels: Mapping[str, CompiledKernel],
    threads: int | None,
) -> dict[Binding, KernelCall]:
    """The calls with their constants in the packed form that the kernels take."""
    install_threadpool()
    found = {b: _task(c, kernels[c.function.name]) for b, c in calls.items()}
    store = _Store(threads, [task for task in found.values() if task is not None])
    return {b: _prepared(call, found[b], store) for b, call in calls.items()}


class _Task(NamedTuple):
    """The work that one kernel does once, and the constants it reads."""

    kernel: CompiledKernel
    once: Preparation
    constants: list[Value]

    @property
    def key(self) -> _Key:
        return self.once.name, tuple(id(v.constant) for v in self.constants)


def _task(call: KernelCall, kernel: CompiledKernel) -> _Task | None:
    once = kernel.preparation
    if once is None:
        return None
    values = [a for a in call.arguments() if isinstance(a, Value)]
    params = [k for k, p in enumerate(call.function.params) if not _is_number(p)]
    return _Task(kernel, once, [values[params.index(k)] for k in once.taken])


def _prepared(call: KernelCall, task: _Task | None, store: _Store) -> KernelCall:
    if task is None:
        return call
    with during("kernel", task.kernel.name):
        added = store.made(task)
    return call._replace(dropped=frozenset(task.once.dropped), added=added)


def _is_number(param: object) -> bool:
    return isinstance(param, Var)


class _Store:
    """Loaded preparation code, and its results, which calls on the same constants share."""

    def __init__(self, threads: int | None, tasks: Sequence[_Task]) -> None:
        self._threads = threads
        self._loaded: dict[_Key, NativeFunction] = {}
        self._made: dict[_Key, tuple[Value, ...]] = {}
        plain = [
            _plain(made) for task in {t.key: t for t in tasks}.values() for made in task.once.made
        ]
        self._memory = LastingMemory(plain)

    def made(self, task: _Task) -> tuple[Value, ...]:
        """The packed constants."""
        if task.key not in self._made:
            self._made[task.key] = tuple(_value(a) for a in self._run(task))
        return self._made[task.key]

    def _run(self, task: _Task) -> list[Array]:
        once, constants, sizes = task.once, task.constants, task.kernel.sizes
        arrays = [np.require(v.constant, requirements=["C", "A"]) for v in constants]
        outputs = [self._memory.zeros(*_plain(made)) for made in once.made]
        if (once.name, sizes) not in self._loaded:
            params = [
                *(ScalarParam(f"size{k}", index) for k in range(len(sizes))),
                *(
                    ArrayParam(v.name, v.dtype, v.tensor.static_shape, None, 1, False)
                    for v in constants
                ),
                *(ArrayParam("packed", DType.of(d), shape) for d, shape in once.made),
            ]
            signature = Signature(once.name, tuple(params), ())
            self._loaded[once.name, sizes] = NativeFunction(
                once.object_code, signature, once.messages, self._threads
            )
        self._loaded[once.name, sizes](*sizes, *arrays, *outputs)
        for value in constants:
            assert value.constant is not None
            # Release the pages of weights in files, else original and packed weights are in memory.
            let_go(value.constant)
        return outputs


def _plain(made: tuple[str, tuple[int, ...]]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    dtype, shape = made
    return shape, DType.of(dtype).numpy


def _value(array: Array) -> Value:
    return Value("packed", TensorType(dtype_of(array.dtype), array.shape), array)
