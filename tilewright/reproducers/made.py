"""From a fault to a reproducer: the smallest thing that still fails, without the user's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from traceback import walk_tb
from typing import Any, Final

from tilewright.frontends import FailedNode, from_onnx
from tilewright.graph import (
    Binding,
    KernelTable,
    Module,
    kernel_bindings,
    module_constants,
    module_text,
    parse_module,
    without_data,
)
from tilewright.ir import Function, function_text
from tilewright.reproducers.again import (
    graph_of,
    packed_model,
    run_again,
    run_graph,
    shown_constants,
)
from tilewright.reproducers.failure import Failure, failure_in, failure_of
from tilewright.reproducers.file import Conditions, Reproducer
from tilewright.reproducers.reduced import Reduced, reduced_module
from tilewright.support.errors import InternalError
from tilewright.support.stand_ins import FILLINGS

#: Seconds that the search for a smaller graph may take.
_SECONDS: Final = 20.0
#: Characters of a model that a report can carry.
_MOST: Final = 1 << 20
_MOST_NODES: Final = 8


def reproducer_of(error: InternalError, conditions: Conditions) -> Reproducer:
    """What shows this fault again."""
    failure = failure_of(error)
    name = error.places.get("kernel") or error.places.get("pass", "")
    nodes = (error.places["node"],) if "node" in error.places else ()
    plain = Reproducer("none", name, conditions, failure, nodes=nodes)
    try:
        made = _reproducer(plain, error)
    except Exception as other:
        made = _without_message(plain, f"no reproducer could be made: {type(other).__name__}")
    return replace(made, nodes=made.nodes or _at_hand(error))


def _at_hand(error: BaseException) -> tuple[str, ...]:
    """The binding that the innermost function with one was looking at, as a guess."""
    frames = [f for f, _ in walk_tb((error.__cause__ or error).__traceback__)]
    local = [v for f in reversed(frames) for v in f.f_locals.values()]
    return next(((v.label,) for v in local if isinstance(v, Binding) and v.label), ())


def _reproducer(plain: Reproducer, error: InternalError) -> Reproducer:
    subject = error.subjects[0] if error.subjects else None
    if isinstance(subject, Module):
        return _of_graph(replace(plain, name=error.places.get("pass", "")), subject)
    if isinstance(subject, Function):
        return _of_kernel(plain, subject, error.subjects[1:])
    if isinstance(subject, FailedNode):
        return _of_node(plain, subject)
    return _without_message(plain, "it is not known what it depends on")


def _without_message(plain: Reproducer, note: str) -> Reproducer:
    """The fault alone; what the exception says may be about the user's data."""
    return replace(plain, note=note, failure=replace(plain.failure, message=""))


# ---- graphs -------------------------------------------------------------------------------------


def _of_graph(plain: Reproducer, module: Module) -> Reproducer:
    kind = "pass" if plain.name else "graph"
    plain = replace(plain, kind=kind)

    def fails(part: Module) -> bool:
        again = parse_module(module_text(part), module_constants(part))
        return plain.failure.is_like(_failure(plain, again))

    def is_failing(part: Module) -> bool:
        # What cannot be written and read, or is no program any more, is no candidate.
        try:
            return fails(part)
        except Exception:
            return False

    if not is_failing(module):
        return _structure(plain, module, "it does not fail once its graph is written and read")
    small = reduced_module(module, is_failing, _SECONDS)
    plain = replace(plain, nodes=plain.nodes or _labels(small.body))
    return _disguised(plain, small) or _structure(
        plain, small.module, "it fails with the weights of the model alone: this is its structure"
    )


def _failure(r: Reproducer, module: Module) -> Failure | None:
    return failure_in(lambda: run_graph(r.kind, r.name, module, r.conditions))


def _labels(body: Sequence[Binding]) -> tuple[str, ...]:
    labels = tuple(dict.fromkeys(b.label for b in body if b.label))
    return labels if len(labels) <= _MOST_NODES else ()


def _disguised(plain: Reproducer, small: Reduced) -> Reproducer | None:
    """The graph without weights, if it fails without them."""
    for filling in FILLINGS:
        bare = without_data(small.module, filling)
        text, shown = module_text(bare), shown_constants(module_constants(bare))
        module = graph_of(text, filling, shown)
        failure = _failure(plain, module)
        if failure is not None and failure.is_like(plain.failure):
            return replace(
                plain, subject=text, filling=filling, constants=shown, failure=failure, fails=True
            )
    return None


def _structure(plain: Reproducer, module: Module, note: str) -> Reproducer:
    bare = without_data(module, "zeros")
    text, shown = module_text(bare), shown_constants(module_constants(bare))
    if len(text) > _MOST:
        return _without_message(plain, f"{note}, which is too large to be shown")
    made = replace(plain, subject=text, filling="zeros", constants=shown)
    return _without_message(made, note)


# ---- kernels and nodes --------------------------------------------------------------------------


def _of_kernel(plain: Reproducer, function: Function, around: Sequence[Any]) -> Reproducer:
    graph = next((g for g in around if isinstance(g, Module)), None)
    nodes = plain.nodes or (_callers(graph, function.name) if graph else ())
    made = replace(plain, kind="kernel", nodes=nodes, subject=function_text(function))
    return replace(made, fails=plain.failure.is_like(run_again(made)))


def _callers(module: Module, kernel: str) -> tuple[str, ...]:
    """The nodes that a kernel computes."""
    table = KernelTable()
    bindings = kernel_bindings(module.main)
    return _labels([b for b in bindings if table(b).function.name == kernel][:1])


def _of_node(plain: Reproducer, node: FailedNode) -> Reproducer:
    # Zeros are short in the file, and a front end seldom looks at elements.
    for filling in reversed(FILLINGS):
        for data in node.models(filling):
            failure = failure_in(lambda data=data: from_onnx(data))
            text = packed_model(data)
            if failure is not None and failure.is_like(plain.failure) and len(text) <= _MOST:
                return replace(plain, kind="onnx", subject=text, failure=failure, fails=True)
    return _without_message(plain, "no model without the weights of this one fails like it")
