"""Runs once what kernels do with constants alone: weights are packed before the first inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.graph import Array, Binding, KernelCall, TensorType, Value, dtype_of
from tilewright.ir import DType, Var
from tilewright.kernels.compiled import CompiledKernel, Preparation
from tilewright.kernels.module import install_threadpool
from tilewright.runtime import CPU, ArrayParam, NativeFunction, ScalarParam, Signature, let_go
from tilewright.support.dtype import index
from tilewright.support.faults import during


def prepare_calls(
    calls: Mapping[Binding, KernelCall],
    kernels: Mapping[str, CompiledKernel],
    threads: int | None,
) -> dict[Binding, KernelCall]:
    """The calls with constants in the form in which the kernels take them."""
    install_threadpool()
    store = _Store(threads)
    return {b: _prepared(c, kernels[c.function.name], store) for b, c in calls.items()}


def _prepared(call: KernelCall, kernel: CompiledKernel, store: _Store) -> KernelCall:
    once = kernel.preparation
    if once is None:
        return call
    values = dict(enumerate(a for a in call.arguments() if isinstance(a, Value)))
    params = [k for k, p in enumerate(call.function.params) if not _is_number(p)]
    constants = [values[params.index(k)] for k in once.taken]
    with during("kernel", kernel.name):
        added = store.made(once, kernel.sizes, constants)
    return call._replace(dropped=frozenset(once.dropped), added=added)


def _is_number(param: object) -> bool:
    return isinstance(param, Var)


class _Store:
    """Preparations that are loaded, and what they made; calls on the same constants share it."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._loaded: dict[tuple[str, tuple[int, ...]], NativeFunction] = {}
        self._made: dict[tuple[str, tuple[int, ...]], tuple[Value, ...]] = {}

    def made(
        self, once: Preparation, sizes: tuple[int, ...], constants: Sequence[Value]
    ) -> tuple[Value, ...]:
        """What is made of constants; the code takes `sizes` first."""
        arrays = [np.require(v.constant, requirements=["C", "A"]) for v in constants]
        key = (once.name, tuple(id(v.constant) for v in constants))
        if key not in self._made:
            made = self._run(once, sizes, constants, arrays)
            self._made[key] = tuple(_value(a) for a in made)
        return self._made[key]

    def _run(
        self,
        once: Preparation,
        sizes: tuple[int, ...],
        constants: Sequence[Value],
        arrays: Sequence[Array],
    ) -> list[Array]:
        outputs = [CPU.zeros(shape, DType.of(dtype).numpy) for dtype, shape in once.made]
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
            # Weights in files would otherwise be in memory twice, as they are and packed.
            let_go(value.constant)
        return outputs


def _value(array: Array) -> Value:
    return Value("packed", TensorType(dtype_of(array.dtype), array.shape), array)
