"""Converts a graph of operators that torch traced (AOTAutograd)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tilewright.frontends.torch.from_torch import Size, add_output, size_input, tensor_input
from tilewright.frontends.torch.importer import Importer, require_converters
from tilewright.frontends.torch.tensors import is_complex
from tilewright.graph import Module
from tilewright.support.faults import during


class ConvertedGraph(NamedTuple):
    """A graph, the arguments that it takes, and the results that it gives."""

    module: Module
    #: The numbers of the arguments that are inputs of the graph, in order.
    takes: list[int]
    #: For each result of torch's graph, whether the converted graph computes it; others are None.
    gives: list[bool]
    #: For each of these, the order of its dimensions in memory; empty: the plain order.
    orders: list[list[int]]


def from_graph(module: Any, constants: Mapping[int, Any]) -> ConvertedGraph:
    """Convert a GraphModule; arguments in `constants` always have these tensors."""
    with during("front end", "PyTorch"):
        require_converters(module, "the graph")
        importer = Importer()
        nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        values = [_operand(importer, k, n, constants) for k, n in enumerate(nodes)]
        for k, value in enumerate(values):
            # A size that can be read from the shape of a tensor need not be given.
            if isinstance(value, Size):
                values[k] = size_input(importer, nodes[k])
        # Results must not share memory with inputs: torch makes views of inputs itself.
        results = importer.graph(module, values)
        orders = [_memory_order(m) for m in _output_metas(module)]
        taken = {id(v) for v in values}
        for k, (result, order) in enumerate(zip(results, orders, strict=True)):
            if order:
                result = importer.builder.transpose(result, axes=order)
            if result is not None:
                add_output(importer, f"output_{k}", result, taken)
        built = importer.builder.build()
        by_name = {n.name: k for k, n in enumerate(nodes)}
        takes = [by_name[p.name] for p in built.main.params]
        gives = [r is not None for r in results]
        given = [order for order, gives in zip(orders, gives, strict=True) if gives]
        return ConvertedGraph(built, takes, gives, given)


def _output_metas(module: Any) -> list[Any]:
    *_, output = module.graph.nodes
    return [n.meta.get("val") if hasattr(n, "meta") else n for n in output.args[0]]


def _memory_order(meta: Any) -> list[int]:
    """The order of a tensor's dimensions in memory, if it is not the plain one.

    torch computes derivatives for the memory layout it assumed when it traced the graph.
    """
    if not hasattr(meta, "stride") or is_complex(meta.dtype):
        return []
    shape, strides = ([_hint(d) for d in sizes] for sizes in (meta.shape, meta.stride()))
    if _UNKNOWN in (*shape, *strides):
        return []
    order = sorted(range(len(shape)), key=lambda k: (-strides[k], k))
    step = 1
    for k in reversed(order):
        if shape[k] != 1 and strides[k] != step:
            return []
        step *= shape[k]
    long = [k for k in order if shape[k] != 1]
    return [] if long == sorted(long) else order


#: A size that depends on data.
_UNKNOWN: Final = -1


def _hint(size: Any) -> int:
    """A size when the graph was traced; evaluating it otherwise would fix it."""
    found = size if isinstance(size, int) else size.node.hint
    return _UNKNOWN if found is None else int(found)


def _operand(importer: Importer, number: int, node: Any, constants: Mapping[int, Any]) -> Any:
    if number in constants:
        return importer.constant(constants[number], node.name)
    meta = node.meta.get("val")
    if _is_token(node):
        return None
    if hasattr(meta, "dtype"):
        return tensor_input(importer, node.name, meta)
    return Size() if type(meta).__name__ in ("SymInt", "int") else meta


def _is_token(node: Any) -> bool:
    """Whether an argument only keeps operators in order: it is None when the graph is called."""
    users = list(node.users)
    return bool(users) and all(
        getattr(u.target, "__name__", "") == "with_effects" and u.args[0] is node for u in users
    )
