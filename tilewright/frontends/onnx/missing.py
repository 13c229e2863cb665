"""All operators of a model that have no converter, reported all at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tilewright.frontends.common.missing import refuse_missing
from tilewright.frontends.onnx.functions import FunctionTable, has_standard_function
from tilewright.frontends.onnx.load import LoadedModel, plain_domain, read_versions
from tilewright.frontends.onnx.order import node_text
from tilewright.frontends.onnx.table import find_converter

#: Remedies for operators that will not be supported soon.
_HINTS: Final = {
    "CastMap": "dictionaries are not supported; pass tensors",
    "DictVectorizer": "dictionaries are not supported; pass tensors",
    "Gradient": "differentiate before exporting",
    "ZipMap": "export with the option zipmap=False",
}


def require_converters(model: LoadedModel, functions: FunctionTable) -> None:
    """Refuse a model that has operators which nothing converts, with a list of them."""
    missing: dict[tuple[str, str, int], list[str]] = {}
    for node, versions in _all_nodes(model, functions):
        domain = plain_domain(node.domain)
        version = versions.get(domain, 1)
        if not _is_served(node, domain, version, functions):
            missing.setdefault((domain, node.op_type, version), []).append(node_text(node))
    hints = {_text(*key): _HINTS[key[1]] for key in missing if key[1] in _HINTS}
    refuse_missing(
        model.name,
        {_text(*key): nodes for key, nodes in sorted(missing.items())},
        hints=hints,
        remedy="define them as functions of the model, or write converters for them",
    )


def _is_served(node: Any, domain: str, version: int, functions: FunctionTable) -> bool:
    return (
        functions.find(domain, node.op_type, node.overload) is not None
        or find_converter(domain, node.op_type, version) is not None
        or has_standard_function(node.op_type, version, domain)
    )


def _all_nodes(
    model: LoadedModel, functions: FunctionTable
) -> Iterator[tuple[Any, dict[str, int]]]:
    """All nodes with the versions they are written for, those inside graphs and functions too."""
    bodies = [(model.proto.graph, model.versions)]
    bodies += [(f, model.versions | read_versions(f.opset_import, f.name)) for f in functions]
    while bodies:
        body, versions = bodies.pop()
        for node in body.node:
            yield node, versions
            for attribute in node.attribute:
                bodies += [(g, versions) for g in attribute.graphs]
                if attribute.HasField("g"):
                    bodies.append((attribute.g, versions))


def _text(domain: str, name: str, version: int) -> str:
    return f"{domain}.{name} (version {version})" if domain else f"{name} (version {version})"
