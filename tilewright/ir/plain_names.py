"""Functions whose parameters are named by number, for uses that must not depend on names."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Function
from tilewright.ir.visit import replace_buffers


def with_plain_names(function: Function) -> Function:
    """The function with its buffers named p0, p1, …

    Steps of a schedule name buffers, and blocks after buffers: steps that are to be replayed on
    equal loops of another model must be recorded on a function with plain names.
    """
    plain = {
        p: p.with_(name=f"p{k}") for k, p in enumerate(function.params) if isinstance(p, Buffer)
    }
    params = tuple(plain[p] if isinstance(p, Buffer) else p for p in function.params)
    return replace(function, params=params, body=replace_buffers(function.body, plain))
