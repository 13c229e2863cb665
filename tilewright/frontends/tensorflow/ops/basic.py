"""Constants, copies, variables, tables, and nodes that compute nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontends.tensorflow.lists import TensorList
from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import converts
from tilewright.frontends.tensorflow.variables import TABLES, Table, Variable
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError


@converts("Const", "HostConst")
def constant(n: Node) -> Value:
    array, dtype = n.tensor("value")
    return n.builder.constant(array, dtype, n.name)


@converts("Placeholder")
def placeholder(n: Node) -> Value:
    raise UserError(f"the input {n.name} is no input of the model")


@converts("PlaceholderWithDefault")
def with_default(n: Node) -> Value:
    return n[0]


@converts(
    *("Identity", "StopGradient", "Snapshot", "PreventGradient", "CheckNumerics", "LoopCond"),
    *("Enter", "RefEnter", "NextIteration", "EnsureShape", "RefIdentity", "Print", "PrintV2"),
    *("CheckNumericsV2", "DebugIdentityV2", "OptimizationBarrier", "PlaceholderV2"),
)
def copied(n: Node) -> Any:
    return n.given[0]


@converts("IdentityN")
def all_copied(n: Node) -> list[Any]:
    return n.given


@converts("NoOp", "Assert", "ControlTrigger")
def nothing(n: Node) -> list[Any]:
    return []


# ---- variables ----------------------------------------------------------------------------------


def _shared_name(n: Node) -> str:
    return n.text("shared_name", "")


@converts("VarHandleOp")
def variable(n: Node) -> Variable:
    return Variable(n.name, _shared_name(n))


@converts("VariableV2", "Variable")
def old_variable(n: Node) -> Value:
    """A variable of the first generation is its value."""
    return n.importer.variable(Variable(n.name, _shared_name(n)))


@converts("ReadVariableOp")
def read_variable(n: Node) -> Value:
    found = n.given[0]
    if isinstance(found, Value):
        return found
    if not isinstance(found, Variable):
        raise UserError(f"{n.name} reads no variable")
    return n.importer.variable(found)


@converts("ResourceGather")
def gather_of_variable(n: Node) -> Value:
    table = read_variable(n)
    return n.builder.gather(table, n[1], axis=0)


@converts("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "Assign", "AssignAdd")
def assignment(n: Node) -> Any:
    raise UserError(
        f"{n.name} changes a variable",
        reason="programs have no state between calls",
        remedy="pass the state in and out",
    )


# ---- tables -------------------------------------------------------------------------------------


@converts(*TABLES)
def table(n: Node) -> Table:
    return Table(n.name, _shared_name(n))


def _held(n: Node) -> tuple[Array, Array]:
    """Keys and values of the table that is looked up."""
    found = n.given[0]
    if not isinstance(found, Table):
        raise UserError(f"{n.name} asks no table")
    return n.importer.contents.table(found)


@converts("LookupTableFindV2", "LookupTableFind")
def look_up(n: Node) -> Value:
    keys, values = _held(n)
    x, default = n[1], n[2]
    whole = np.asarray(values) if values.dtype == object else values.astype(default.dtype.numpy)
    own = keys if keys.dtype == object else keys.astype(x.dtype.numpy)
    flat = n.builder.reshape(default, shape=[])
    return n.builder.lookup(x, n.constant(own), n.constant(whole), flat)


@converts("LookupTableSizeV2")
def table_size(n: Node) -> Value:
    keys, _ = _held(n)
    return n.constant(np.asarray(keys.size, np.int64))


# ---- lists of tensors ---------------------------------------------------------------------------


def _element_shape(n: Node, index: int) -> tuple[Any, ...] | None:
    """The shape of an element as an operand gives it: -1, or with -1 for unknown extents."""
    value = n[index]
    if value.ndim == 0:
        return None
    return tuple(n.dims(index))


@converts("TensorListReserve", "EmptyTensorList")
def reserved(n: Node) -> TensorList:
    dtype = n.dtype("element_dtype")
    if n.op == "EmptyTensorList":
        return TensorList(dtype, 0, _element_shape(n, 0))
    return TensorList(dtype, n.dim(1), _element_shape(n, 0))


@converts("TensorListFromTensor")
def list_of_tensor(n: Node) -> TensorList:
    x = n[0]
    return TensorList(x.dtype, x.shape[0], tuple(x.shape[1:]), x)


def _list(n: Node, index: int = 0) -> TensorList:
    found = n.given[index]
    if not isinstance(found, TensorList):
        raise UserError(f"operand {index} of {n.name} is no list")
    return found


@converts("TensorListSetItem")
def set_item(n: Node) -> TensorList:
    return _list(n).with_item(n, n[1], n[2])


@converts("TensorListGetItem")
def get_item(n: Node) -> Value:
    return _list(n).item(n, n[1])


@converts("TensorListStack")
def stacked(n: Node) -> Value:
    return _list(n).tensor(n)


@converts("TensorListLength")
def list_length(n: Node) -> Value:
    count = _list(n).count
    return n.builder.dims(elements=[count], shape=[], dtype="int32")


@converts("TensorListPushBack")
def push_back(n: Node) -> TensorList:
    return _list(n).with_last(n, n[1])


@converts("TensorListPopBack")
def pop_back(n: Node) -> list[Any]:
    return list(_list(n).without_last(n))


@converts("TensorListGather")
def list_gather(n: Node) -> Value:
    return n.builder.gather(_list(n).tensor(n), n[1], axis=0)


@converts("TensorListScatterIntoExistingList")
def list_scatter(n: Node) -> TensorList:
    items, x, places = _list(n), n[1], n[2]
    data = items.filled(n, n.builder.index(x, 0)).tensor(n)
    index = n.builder.unsqueeze(n.builder.cast(places, dtype="int64"), axes=[1])
    return TensorList(items.dtype, items.count, items.shape, n.builder.scatter_nd(data, index, x))


@converts("TensorListResize")
def resized(n: Node) -> TensorList:
    items = _list(n)
    if items.data is None:
        return TensorList(items.dtype, n.dim(1), items.shape)
    raise UserError(f"{n.name} changes the length of a list that is filled")


# ---- arrays of tensors, the first generation's lists --------------------------------------------


@converts("TensorArrayV3")
def tensor_array(n: Node) -> list[Any]:
    """The flow of an array is the list; the handle only names it."""
    shape = n.shape("element_shape") if n.has("element_shape") else None
    dims = None if shape is None else tuple(-1 if d is None else d for d in shape)
    items = TensorList(n.dtype("dtype"), n.dim(0), dims)
    return [items, items]


def _flow(n: Node, index: int) -> TensorList:
    return _list(n, index)


@converts("TensorArrayWriteV3")
def array_write(n: Node) -> TensorList:
    return _flow(n, 3).with_item(n, n[1], n[2])


@converts("TensorArrayReadV3")
def array_read(n: Node) -> Value:
    return _flow(n, 2).item(n, n[1])


@converts("TensorArrayScatterV3")
def array_scatter(n: Node) -> TensorList:
    items, places, x = _flow(n, 3), n[1], n[2]
    data = items.filled(n, n.builder.index(x, 0)).tensor(n)
    index = n.builder.unsqueeze(n.builder.cast(places, dtype="int64"), axes=[1])
    data = n.builder.scatter_nd(data, index, x)
    return TensorList(items.dtype, items.count, tuple(x.shape[1:]), data)


@converts("TensorArrayGatherV3")
def array_gather(n: Node) -> Value:
    return n.builder.gather(_flow(n, 2).tensor(n), n[1], axis=0)


@converts("TensorArraySizeV3")
def array_size(n: Node) -> Value:
    return n.builder.dims(elements=[_flow(n, 1).count], shape=[], dtype="int32")
