"""Kernels as data: their signature, and the machine they are for."""

from __future__ import annotations

from typing import Any

from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.requests import Request
from tilewright.runtime import (
    KernelCode,
    UnreadableError,
    signature_data,
    signature_from,
    target_data,
    target_from,
)


def kernel_data(kernel: KernelCode) -> dict[str, Any]:
    """A kernel without its code."""
    return {
        "target": target_data(kernel.target),
        "messages": list(kernel.messages),
        "threads": kernel.threads,
        **signature_data(kernel.signature),
    }


def kernel_from(request: Request, code: bytes, pool: bytes) -> KernelCode:
    """The kernel that a request describes, checked."""
    try:
        target = target_from(request.fields.get("target"))
        signature = signature_from(request.fields)
    except UnreadableError as error:
        reason = f"a {error.what} of a kernel makes no sense"
        raise ProtocolError("a message is damaged", reason=reason) from None
    messages = tuple(request.texts("messages"))
    return KernelCode(target, signature, code, messages, pool, request.optional("threads"))
