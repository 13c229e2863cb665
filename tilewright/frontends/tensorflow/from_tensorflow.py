"""From a model to a graph."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tilewright.frontends.common.borders import given_array, named_output, require_names
from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.common.input_shapes import GivenDim, Shape, input_shape
from tilewright.frontends.common.missing import refuse_missing
from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.frontends.sources import Source
from tilewright.frontends.tensorflow.bodies import Body
from tilewright.frontends.tensorflow.importer import LAZY, Importer, Scope
from tilewright.frontends.tensorflow.load import LoadedModel, ModelInput, load_model
from tilewright.frontends.tensorflow.table import TABLE
from tilewright.frontends.tensorflow.tensors import element_type
from tilewright.graph import Module, TensorType, Value, passes
from tilewright.support.faults import during

#: What can be done about operators that will not be supported soon.
_HINTS: Final = {
    "PyFunc": "it runs Python code, which is not in the file",
    "EagerPyFunc": "it runs Python code, which is not in the file",
}


def from_tensorflow(
    source: Any,
    shapes: Mapping[str, Shape] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
) -> Module:
    """The graph of a TensorFlow model: the folder of a SavedModel, or a frozen GraphDef.

    `shapes` refines the shapes of inputs: numbers, names of symbolic dimensions, None for any size.
    `values` are inputs that the program is built for. A SavedModel has signatures, of which
    `serving_default` is taken unless another is named; the outputs of a GraphDef are its last
    nodes, unless `outputs` names others.
    """
    found = source if isinstance(source, Source) else Source(source)
    with _reading(found.name):
        passes.require_shapes(shapes or {})
        model = load_model(found, signature, None if outputs is None else list(outputs))
        with during("front end", "TensorFlow"), _reading(found.name):
            return _converted(model, shapes or {}, values or {})


def input_names(source: Source) -> list[str]:
    """The names of the inputs of a model, in order."""
    with _reading(source.name):
        return [i.name for i in load_model(source).inputs]


@contextmanager
def _reading(name: str) -> Generator[None]:
    """Code that trusts a file to match its format."""
    with trusting(name, "check that the file is complete"):
        yield


def _converted(
    model: LoadedModel, shapes: Mapping[str, Shape], values: Mapping[str, Any]
) -> Module:
    refuse = _require_converters(model)
    for what, given in (("shapes", shapes), ("values", values)):
        require_names(what, given, [i.name for i in model.inputs])
    importer = Importer(model, refuse)
    scope = Scope(model.body)
    taken: set[Value | None] = set()
    for spec in model.inputs:
        value = _input(importer, spec, shapes.get(spec.name), values)
        scope.results[spec.source.node] = [value]
        importer.named.add(value)
        taken.add(value)
    for name, reference in model.outputs:
        value = importer.value(reference, scope)
        result = named_output(importer.builder, name, value, taken)
        importer.builder.output(result)
        taken.add(result)
    return importer.builder.build()


def _input(
    importer: Importer, spec: ModelInput, given: Shape | None, values: Mapping[str, Any]
) -> Value:
    dtype = element_type(spec.dtype, f"input {spec.name}")
    declared: list[GivenDim] | None = None if spec.shape is None else list(spec.shape)
    if declared is None and given is None:
        raise UnspecialisedError(
            f"the model does not declare the rank of input {spec.name}",
            reason="it must be known before the program can be built",
            shapes=[spec.name],
        )
    shape = input_shape(spec.name, declared, given, importer.builder)
    value = importer.builder.input(spec.name, TensorType(dtype, shape))
    known = given_array(value, values[spec.name]) if spec.name in values else None
    importer.structure.add_input(value, spec.name, known)
    return value


# ---- operators that nothing converts ------------------------------------------------------------


def _require_converters(model: LoadedModel) -> Callable[[], None]:
    """Refuse a model that needs operators which nothing converts, with a list of them.

    Operators that only branches need may never be converted, such as dropout at inference: the
    returned function refuses the model once they are.
    """
    missing = _missing(model, frozenset())
    remedy = (
        "register converters: tilewright.frontends.tensorflow.table.TABLE.register(name, convert)"
    )

    def refuse() -> None:
        refuse_missing(model.name, missing, hints=_HINTS, remedy=remedy)

    if missing and _missing(model, LAZY):
        refuse()
    return refuse


def _missing(model: LoadedModel, lazy: frozenset[str]) -> dict[str, list[str]]:
    """Operators that nothing converts, with their nodes; those that only `lazy` operators need are
    left out."""
    missing: dict[str, list[str]] = {}
    seen: set[str] = set()
    pending: list[tuple[Body, list[str]]] = [(model.body, [r.node for _, r in model.outputs])]
    inputs = {i.source.node for i in model.inputs}
    while pending:
        body, names = pending.pop()
        done = set(inputs) if body is model.body else set[str]()
        while names:
            name = names.pop()
            if name in done or body.is_param(name):
                continue
            done.add(name)
            node = body.node(name)
            if node.op not in lazy:
                names += [r.node for r in body.inputs(node)]
            called = _called(node)
            if node.op in model.functions:
                called.append(node.op)
            elif TABLE.find("", node.op) is None:
                missing.setdefault(node.op, []).append(f"node {node.name}")
            for function in called:
                inner = model.functions.get(function)
                if inner is not None and function not in seen:
                    seen.add(function)
                    results = [inner.reference(r) for r in inner.results.values()]
                    pending.append((inner, [r.node for r in results if r is not None]))
    return missing


def _called(node: Any) -> list[str]:
    """The functions that a node calls."""
    found: list[str] = []
    for value in node.attr.values():
        if value.has("func"):
            found.append(value.func.name)
        elif value.has("list"):
            found += [f.name for f in value.list.func]
    return found
