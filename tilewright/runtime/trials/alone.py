"""A compiled kernel of a model, called by itself, to measure it outside of its model."""

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
    """A kernel of a function, with its constants packed before it is called."""

    def __init__(
        self, kernel: PackedKernel, signature: Signature, threads: int | None, device: Device
    ) -> None:
        self._signature, self._threads = signature, threads
        self._once = kernel.preparation
        own = signature_alone(kernel, signature)
        self._native = NativeFunction(kernel.code, own, kernel.messages, threads, device)

    def on(self, arguments: Sequence[Any]) -> Callable[[], None]:
        """The call with these arguments of the function; outputs may stay on the device."""
        return self._native.prepared(*self._own(arguments))

    def rotating(
        self, arguments: Sequence[Any], apart: Sequence[int], count: int
    ) -> list[Callable[[], None]]:
        """`count` calls with these arguments, each with its own device copies of those with indices
        in `apart`, so that what one call has read is not in the cache for the next."""
        return self._native.prepared_apart(self._own(arguments), apart, count)

    def run(self, arguments: Sequence[Any]) -> None:
        """Call it with these arguments of the function, which include its outputs."""
        self._native(*self._own(arguments))

    def _own(self, arguments: Sequence[Any]) -> list[Any]:
        once = self._once
        if once is None:
            return list(arguments)
        return [*kept(once, arguments), *self._prepared(once, arguments)]

    def _prepared(self, once: Preparation, arguments: Sequence[Any]) -> list[Any]:
        """The constants that the kernel packs once."""
        outputs = [CPU.zeros(shape, DType.of(dtype).numpy) for dtype, shape in once.made]
        signature = preparing_signature(once, self._signature)
        prepare = NativeFunction(once.object_code, signature, once.messages, self._threads)
        prepare(*(arguments[k] for k in once.taken), *outputs)
        return outputs


def kept(once: Preparation, of_all: Sequence[Any]) -> list[Any]:
    """The function's parameters or arguments that the kernel itself takes as well."""
    return [item for k, item in enumerate(of_all) if k not in once.dropped]


def signature_alone(kernel: PackedKernel, signature: Signature) -> Signature:
    """The signature of the kernel itself, with packed constants instead of the function's."""
    once = _checked(kernel.preparation, len(signature.params))
    if once is None:
        return Signature(kernel.name, signature.params, signature.dims)
    params = (*kept(once, signature.params), *_packed_params(once, is_written=False))
    return Signature(kernel.name, params, signature.dims)


def preparing_signature(once: Preparation, signature: Signature) -> Signature:
    """The signature of the preparation: constants of the function, and the buffers it fills."""
    taken = [signature.params[k] for k in once.taken]
    return Signature(once.name, (*taken, *_packed_params(once, is_written=True)), ())


def _packed_params(once: Preparation, *, is_written: bool) -> list[ArrayParam]:
    return [
        ArrayParam("packed", DType.of(d), shape, is_written=is_written) for d, shape in once.made
    ]


def _checked(once: Preparation | None, count: int) -> Preparation | None:
    if once is not None and any(k >= count for k in (*once.taken, *once.dropped)):
        raise UserError("a kernel cannot be called", reason="it is for other arguments")
    return once
