"""A compiled kernel of a model, called by itself: for measuring it outside of its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.runtime.device import CPU, Device
from tilewright.runtime.function import NativeFunction
from tilewright.runtime.kernel import PackedKernel, Preparation
from tilewright.runtime.signature import ArrayParam, Signature
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError


class KernelAlone:
    """A kernel of a function, whose constants are prepared before it is called."""

    def __init__(
        self, kernel: PackedKernel, signature: Signature, threads: int | None, device: Device
    ) -> None:
        self._signature, self._threads = signature, threads
        self._once = _checked(kernel.preparation, len(signature.params))
        own = Signature(kernel.name, self._params(), signature.dims)
        self._native = NativeFunction(kernel.code, own, kernel.messages, threads, device)

    def on(self, arguments: Sequence[Any]) -> Callable[[], None]:
        """What calls it with these arguments of the function; what it writes may stay on the
        device."""
        return self._native.prepared(*self._own(arguments))

    def run(self, arguments: Sequence[Any]) -> None:
        """Call it with these arguments of the function, in which outputs are written."""
        self._native(*self._own(arguments))

    def _own(self, arguments: Sequence[Any]) -> list[Any]:
        once = self._once
        if once is None:
            return list(arguments)
        kept = [a for k, a in enumerate(arguments) if k not in once.dropped]
        return [*kept, *self._prepared(once, arguments)]

    def _params(self) -> tuple[Any, ...]:
        once = self._once
        if once is None:
            return self._signature.params
        kept = [p for k, p in enumerate(self._signature.params) if k not in once.dropped]
        return (*kept, *_packed_params(once))

    def _prepared(self, once: Preparation, arguments: Sequence[Any]) -> list[Any]:
        """What the kernel makes of constants, once."""
        outputs = [CPU.zeros(shape, DType.of(dtype).numpy) for dtype, shape in once.made]
        taken = [self._signature.params[k] for k in once.taken]
        signature = Signature(once.name, (*taken, *_packed_params(once)), ())
        prepare = NativeFunction(once.object_code, signature, once.messages, self._threads)
        prepare(*(arguments[k] for k in once.taken), *outputs)
        return outputs


def _packed_params(once: Preparation) -> list[ArrayParam]:
    return [ArrayParam("packed", DType.of(d), shape) for d, shape in once.made]


def _checked(once: Preparation | None, count: int) -> Preparation | None:
    if once is not None and any(k >= count for k in (*once.taken, *once.dropped)):
        raise UserError("a kernel cannot be called", reason="it is for other arguments")
    return once
