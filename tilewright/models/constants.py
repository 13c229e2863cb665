"""The constants of compiled graphs: their size, and the files they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.graph import Array, Module, Value, all_graphs
from tilewright.runtime import in_memory


def constants_of(module: Module) -> Iterator[Value]:
    """The constants that a module uses or returns, possibly several times each."""
    for function in module.functions.values():
        for graph in all_graphs(function):
            for value in (*(a for b in graph.body for a in b.expr.args), *graph.results):
                if value is not None and value.is_constant:
                    yield value


def constant_bytes(module: Module) -> int:
    arrays = {id(v.constant): v.constant for v in constants_of(module)}
    return sum(a.nbytes for a in arrays.values() if a is not None)


def copied_from_files(arrays: Sequence[Array], module: Module | None) -> list[Array]:
    """The arrays, copied if they are in mapped files; also replaces them in a module that is kept.

    A model must not change, or break, with the file it was read from.
    """
    # Keeps the arrays alive, so that no two have the same id.
    made: dict[int, tuple[Array, Array]] = {}

    def copied(array: Array) -> Array:
        if id(array) not in made:
            made[id(array)] = (array, in_memory(array))
        return made[id(array)][1]

    for value in () if module is None else constants_of(module):
        assert value.constant is not None
        value.constant = copied(value.constant)
        made[id(value.constant)] = (value.constant, value.constant)
    return [copied(a) for a in arrays]
