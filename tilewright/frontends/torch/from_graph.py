"""From a graph of operators that torch traced (AOTAutograd) to one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.frontends.torch.from_torch import Size, add_output, size_input, tensor_input
from tilewright.frontends.torch.importer import Importer, require_converters
from tilewright.graph import Module
from tilewright.support.faults import during


class ConvertedGraph(NamedTuple):
    """A graph, which arguments it takes, and which results it gives."""

    module: Module
    #: The numbers of the arguments that are inputs of the graph, in order.
    takes: list[int]
    #: For each result of torch's graph, whether ours gives it; others are None.
    gives: list[bool]


def from_graph(module: Any, constants: Mapping[int, Any]) -> ConvertedGraph:
    """Convert a GraphModule; arguments in `constants` have these tensors for good."""
    with during("front end", "PyTorch"):
        require_converters(module, "the graph")
        importer = Importer()
        nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        values = [_operand(importer, k, n, constants) for k, n in enumerate(nodes)]
        for k, value in enumerate(values):
            # A size that the shape of a tensor tells need not be given.
            if isinstance(value, Size):
                values[k] = size_input(importer, nodes[k])
        # Results must not be the memory of what goes in: torch makes views of inputs itself.
        results = importer.graph(module, values)
        taken = {id(v) for v in values}
        for k, result in enumerate(results):
            if result is not None:
                add_output(importer, f"output_{k}", result, taken)
        built = importer.builder.build()
        by_name = {n.name: k for k, n in enumerate(nodes)}
        takes = [by_name[p.name] for p in built.main.params]
        return ConvertedGraph(built, takes, [r is not None for r in results])


def _operand(importer: Importer, number: int, node: Any, constants: Mapping[int, Any]) -> Any:
    if number in constants:
        return importer.constant(constants[number], node.name)
    meta = node.meta.get("val")
    if hasattr(meta, "dtype"):
        return tensor_input(importer, node.name, meta)
    return Size() if type(meta).__name__ in ("SymInt", "int") else meta
