"""Branches, loops, variables and tables."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.states import variable_name
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("IF")
def if_(n: Node) -> Any:
    """A condition, then the arguments of both subgraphs."""
    args = n.inputs[1:]
    then, otherwise = (partial(n.importer.body, n.option(side), args) for side in ("then", "else"))
    return n.builder.branch(n.builder.reshape(n[0], shape=[]), then, otherwise)


@converts("WHILE")
def while_(n: Node) -> Any:
    """The operands go through the body as long as the condition holds."""
    b = n.builder
    test, step = n.option("cond"), n.option("body")

    def holds(state: Any) -> Value:
        found = n.importer.body(test, state)[0]
        if found is None:
            raise UserError("the condition of a loop gives nothing")
        return b.reshape(found, shape=[])

    def body(_: Value, *state: Value) -> Any:
        after = n.importer.body(step, state)
        return holds(after), after, ()

    return b.loop(None, n.all, body, condition=holds(n.all))


@converts("CALL")
def call(n: Node) -> Any:
    return n.importer.subgraph(n.option("subgraph"), n.inputs)


@converts("CALL_ONCE")
def call_once(n: Node) -> list[Value]:
    """What fills variables and tables before the first run; the former are inputs here."""
    held = dict(n.importer.variables)
    n.importer.subgraph(n.option("subgraph"), ())
    n.importer.variables.update(held)
    return []


# ---- variables ----------------------------------------------------------------------------------


@converts("VAR_HANDLE")
def var_handle(n: Node) -> list[Value]:
    n.scope.handles[n.operator.outputs[0]] = variable_name(n.operator)
    return []


def _handle(n: Node) -> str:
    name = n.scope.handles.get(n.operator.inputs[0])
    if name is None:
        raise UserError("the variable or table is not known here")
    return name


@converts("READ_VARIABLE")
def read_variable(n: Node) -> Value:
    name = _handle(n)
    if name not in n.importer.variables:
        raise UserError(f"the variable {name} has no value")
    return n.importer.variables[name]


@converts("ASSIGN_VARIABLE")
def assign_variable(n: Node) -> list[Value]:
    n.importer.assign(_handle(n), n[1])
    return []


# ---- tables -------------------------------------------------------------------------------------


@converts("HASHTABLE")
def hashtable(n: Node) -> list[Value]:
    n.scope.handles[n.operator.outputs[0]] = f"table {n.option('table')}"
    return []


@converts("HASHTABLE_IMPORT")
def hashtable_import(n: Node) -> list[Value]:
    n.importer.tables.setdefault(_handle(n), (n.array(1), n.array(2)))
    return []


def _table(n: Node) -> Any:
    name = _handle(n)
    if name not in n.importer.tables:
        raise UserError("the table is empty")
    return n.importer.tables[name]


@converts("HASHTABLE_FIND")
def hashtable_find(n: Node) -> Value:
    keys, values = _table(n)
    default = n.builder.reshape(n[2], shape=[])
    return n.builder.lookup(
        n[1], n.constant(keys, n[1].dtype), n.constant(values, n[2].dtype), default
    )


@converts("HASHTABLE_SIZE")
def hashtable_size(n: Node) -> Value:
    return n.constant([len(_table(n)[0])], n.out_dtype())


@converts("HASHTABLE_LOOKUP")
def hashtable_lookup(n: Node) -> list[Value]:
    """Rows of a table by keys in order; zeros where there is none, and whether there is one."""
    b = n.builder
    wanted, keys, rows = n[0], n[1], n[2]
    is_key = b.equal(b.unsqueeze(wanted, axes=[1]), b.unsqueeze(keys, axes=[0]))
    place = b.argmax(b.cast(is_key, dtype="int32"), axis=1)
    found = b.any(is_key, axes=[1])
    taken = b.gather(rows, place, axis=0)
    shape = [wanted.shape[0], *[1] * (rows.ndim - 1)]
    kept = b.where(b.reshape(found, shape=shape), taken, n.scalar(0, rows))
    return [kept, b.cast(found, dtype="uint8")]
