"""The contents of variables and tables, according to the nodes that fill them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.frontends.tensorflow.bodies import Body, Reference
from tilewright.frontends.tensorflow.load import LoadedModel
from tilewright.frontends.tensorflow.tensors import read_tensor
from tilewright.frontends.tensorflow.wire import Message
from tilewright.graph import Array
from tilewright.ir import DType
from tilewright.support.errors import UserError

_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")
_COPIES: Final = ("Identity", "IdentityN", "Enter", "Cast")
_VARIABLES: Final = ("VarHandleOp", "VariableV2", "Variable", "AutoReloadVariable")
TABLES: Final = ("HashTableV2", "HashTable", "MutableHashTableV2", "MutableHashTable")
_MOST_LINES: Final = 1 << 24


@dataclass(frozen=True)
class Variable:
    """A variable, by the node that creates it."""

    node: str
    shared_name: str


@dataclass(frozen=True)
class Table:
    """A table of keys and values, by the node that creates it."""

    node: str
    shared_name: str


class _Place:
    """A result in the outermost graph or in a function that it calls."""

    def __init__(self, model: LoadedModel, body: Body, caller: Message | None) -> None:
        self.model, self.body, self.caller = model, body, caller

    def source(self, reference: Reference | None) -> tuple[_Place, Message | None, int]:
        """The node of a result, found through copies and a function's parameters."""
        place = self
        for _ in range(64):
            if reference is None:
                return place, None, 0
            if place.body.is_param(reference.node) and place.caller is not None:
                at = place.body.params.index(reference.node)
                outer = _Place(self.model, self.model.body, None)
                given = outer.body.inputs(place.caller)
                place, reference = outer, given[at] if at < len(given) else None
                continue
            node = place.body.node(reference.node)
            if node.op not in _COPIES:
                return place, node, reference.index
            inputs = place.body.inputs(node)
            at = reference.index if node.op == "IdentityN" else 0
            reference = inputs[at] if at < len(inputs) else None
        return place, None, 0

    def constant(self, reference: Reference | None) -> Array | None:
        _, node, _ = self.source(reference)
        if node is None or node.op != "Const":
            return None
        return read_tensor(node.attr["value"].tensor, node.name)[0]


def _places(model: LoadedModel) -> Iterator[_Place]:
    """The outermost graph, and the functions that its nodes call."""
    yield _Place(model, model.body, None)
    for node in model.body.nodes.values():
        if node.op in _CALLS and "f" in node.attr:
            body = model.functions.get(node.attr["f"].func.name)
            if body is not None:
                yield _Place(model, body, node)


class Contents:
    """The contents of the variables and tables of a model."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._keys: dict[str, str] | None = None
        self._tables: dict[str, tuple[Array, Array]] | None = None

    def variable(self, variable: Variable) -> tuple[Array, DType]:
        """The value of a variable, from the checkpoint."""
        bundle = self._model.bundle
        if bundle is None:
            raise UserError(
                f"the variable {variable.shared_name or variable.node} has no value",
                reason="the model has no checkpoint",
                remedy="freeze the graph, or give the folder of the SavedModel",
            )
        if self._keys is None:
            self._keys = dict(self._restored())
        key = self._keys.get(variable.node)
        if key is None:
            names = [variable.shared_name, variable.node]
            names += [f"{n}/.ATTRIBUTES/VARIABLE_VALUE" for n in names]
            key = next((n for n in names if n in bundle), variable.node)
        return bundle.read(key)

    def _restored(self) -> Iterator[tuple[str, str]]:
        """Variables with the keys by which they are restored."""
        for place in _places(self._model):
            for node in place.body.nodes.values():
                if node.op not in ("AssignVariableOp", "Assign"):
                    continue
                inputs = place.body.inputs(node)
                if len(inputs) != 2:
                    continue
                _, target, _ = place.source(inputs[0])
                where, restore, index = place.source(inputs[1])
                if target is None or target.op not in _VARIABLES or restore is None:
                    continue
                if restore.op != "RestoreV2":
                    continue
                names = where.constant(where.body.inputs(restore)[1])
                if names is not None and index < names.size:
                    yield target.name, str(names.ravel()[index])

    # ---- tables ---------------------------------------------------------------------------------

    def table(self, table: Table) -> tuple[Array, Array]:
        """Keys and values of a table."""
        if self._tables is None:
            self._tables = dict(self._filled())
        found = self._tables.get(table.node) or self._tables.get(f"shared:{table.shared_name}")
        if found is None:
            raise UserError(f"nothing says what the table {table.node} holds")
        return found

    def _filled(self) -> Iterator[tuple[str, tuple[Array, Array]]]:
        for place in _places(self._model):
            for node in place.body.nodes.values():
                contents = self._contents(place, node)
                if contents is None:
                    continue
                _, target, _ = place.source(place.body.inputs(node)[0])
                if target is not None and target.op in TABLES:
                    yield target.name, contents
                    shared = target.attr.get("shared_name")
                    if shared is not None and len(shared.s):
                        yield f"shared:{bytes(shared.s).decode('utf-8', 'replace')}", contents

    def _contents(self, place: _Place, node: Message) -> tuple[Array, Array] | None:
        inputs = place.body.inputs(node)
        if node.op in ("LookupTableImportV2", "InitializeTableV2", "InitializeTable"):
            found = [place.constant(i) for i in inputs[1:3]]
            if len(found) == 2 and found[0] is not None and found[1] is not None:
                return found[0], found[1]
        if node.op == "InitializeTableFromTextFileV2" and len(inputs) == 2:
            return self._from_file(place, node, inputs[1])
        return None

    def _from_file(
        self, place: _Place, node: Message, file: Reference
    ) -> tuple[Array, Array] | None:
        """Lines of an asset: -2 means the whole line, -1 its number."""
        _, named, _ = place.source(file)
        path = None if named is None else self._model.assets.get(named.name)
        if path is None:
            return None
        try:
            lines = path.read_text(encoding="utf-8").splitlines()[:_MOST_LINES]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path}", reason=str(error)) from None
        delimiter = bytes(node.attr["delimiter"].s).decode() if "delimiter" in node.attr else "\t"
        columns = [
            self._column(lines, delimiter, node.attr[k].i) for k in ("key_index", "value_index")
        ]
        return columns[0], columns[1]

    @staticmethod
    def _column(lines: list[str], delimiter: str, index: int) -> Array:
        if index == -1:
            return np.arange(len(lines), dtype=np.int64)
        parts: list[Any] = lines if index == -2 else [t.split(delimiter)[index] for t in lines]
        made = np.empty(len(parts), object)
        made[:] = parts
        return made
