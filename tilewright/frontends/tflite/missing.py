"""All operators of a model that have no converter, reported all at once."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.frontends.common.missing import refuse_missing
from tilewright.frontends.tflite.importer import node_text
from tilewright.frontends.tflite.load import CUSTOM, LoadedModel, Operator, SubGraph
from tilewright.frontends.tflite.table import find_converter


def require_converters(model: LoadedModel) -> None:
    """Refuse a model that has operators which nothing converts, with a list of them."""
    missing: dict[str, list[str]] = {}
    for graph, number, operator in _all_operators(model):
        if find_converter(operator.domain, operator.name, operator.version) is None:
            missing.setdefault(_text(operator), []).append(node_text(graph, operator, number))
    refuse_missing(
        model.name,
        dict(sorted(missing.items())),
        remedy="write converters for them with tilewright.frontends.tflite.TABLE.register",
    )


def _all_operators(model: LoadedModel) -> Iterator[tuple[SubGraph, int, Operator]]:
    for graph in model.subgraphs:
        for number, operator in enumerate(graph.operators):
            yield graph, number, operator


def _text(operator: Operator) -> str:
    kind = "custom operator " if operator.domain == CUSTOM else ""
    return f"{kind}{operator.name} (version {operator.version})"
