"""Runs what a reproducer holds: it fails as it did, in another way, or not at all."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.kernels.build import as_permitted
from tilewright.reproducers.failure import Failure, failure_in
from tilewright.reproducers.file import Conditions, Reproducer
from tilewright.support.errors import UserError, nearest
from tilewright.support.stand_ins import FILLINGS, Array, Filling, filled, is_kept, uniform
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.graph import Module


def run_again(reproducer: Reproducer) -> Failure | None:
    """How it fails now; None where it does not."""
    run = _RUNS.get(reproducer.kind)
    if run is None or not reproducer.subject:
        raise UserError(
            "there is nothing to run in this reproducer", reason=reproducer.note or "it is a report"
        )
    prepared = run(reproducer)
    return failure_in(prepared)


# ---- graphs -------------------------------------------------------------------------------------


def run_graph(kind: str, name: str, module: Module, conditions: Conditions) -> None:
    """One pass over a graph (`kind` "pass"), or all that follows the passes."""
    from tilewright.compile import compile_fused, graph_passes
    from tilewright.graph import run_pass

    target = Target.of(conditions.target)
    with conditions.context():
        if kind == "graph":
            compile_fused(module, target, checked=conditions.checked)
            return
        steps = {step.name: step for step in graph_passes(target)}
        if name not in steps:
            raise UserError(f"there is no pass {name}", remedy=nearest(name, steps))
        run_pass(module, steps[name].run)


def shown_constants(constants: Mapping[str, Array]) -> dict[str, Any]:
    """The constants that are part of the structure, as the file writes them."""
    return {name: _constant_text(array) for name, array in constants.items() if is_kept(array)}


def _constant_text(array: Array) -> Any:
    known = {0: "zeros", 1: "ones"}.get(-1 if (u := uniform(array)) is None else u)
    return known or array.tolist()


def graph_of(text: str, filling: Filling, shown: Mapping[str, Any]) -> Module:
    """The graph of a reproducer, with other constants in the place of the user's."""
    from tilewright.graph import module_constants, parse_module

    blank = module_constants(parse_module(text, blank=True))
    made = {n: _constant(n, a, filling, shown.get(n)) for n, a in blank.items()}
    return parse_module(text, made)


def _constant(name: str, blank: Array, filling: Filling, shown: Any) -> Array:
    if shown in ("zeros", "ones"):
        return np.full(blank.shape, shown == "ones").astype(blank.dtype)
    if shown is not None:
        return np.array(shown, blank.dtype).reshape(blank.shape)
    return filled(blank.dtype, blank.shape, name, filling)


def _graph(r: Reproducer) -> Callable[[], Any]:
    if r.filling not in FILLINGS:
        raise UserError(f"nothing is known to fill weights with {r.filling}")
    module = graph_of(r.subject, r.filling, r.constants)
    return lambda: run_graph(r.kind, r.name, module, r.conditions)


# ---- kernels and nodes --------------------------------------------------------------------------


def _kernel(r: Reproducer) -> Callable[[], Any]:
    from tilewright.ir import parse_function
    from tilewright.kernels.compiled import compile_function
    from tilewright.kernels.workers import KernelCrashError, compile_in_worker

    function, target = parse_function(r.subject), as_permitted(Target.of(r.conditions.target))
    # What ended a worker process would end this one.
    crashed = r.failure.exception == KernelCrashError.__name__
    run = compile_in_worker if crashed else compile_function
    return lambda: run(function, target, r.conditions.kernel_options())


def packed_model(data: bytes) -> str:
    """A model as text."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _onnx(r: Reproducer) -> Callable[[], Any]:
    from tilewright.frontends import from_onnx

    try:
        data = zlib.decompress(base64.b64decode(r.subject))
    except (binascii.Error, zlib.error) as error:
        raise UserError("the model in this reproducer is damaged", reason=str(error)) from None
    return lambda: from_onnx(data)


_RUNS: dict[str, Callable[[Reproducer], Callable[[], Any]]] = {
    "pass": _graph,
    "graph": _graph,
    "kernel": _kernel,
    "onnx": _onnx,
}
