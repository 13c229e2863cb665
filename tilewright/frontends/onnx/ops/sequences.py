"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.onnx.element_types import element_type
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.indexing import scalar
from tilewright.frontends.onnx.table import converts
from tilewright.graph import SequenceType, Value
from tilewright.support.errors import UserError


@converts("SequenceConstruct")
def sequence_construct(n: Node) -> Value:
    return n.builder.sequence(*n.all)


@converts("SequenceEmpty")
def sequence_empty(n: Node) -> Value:
    return n.builder.sequence_empty(dtype=n.dtype("dtype", 1))


@converts("SequenceInsert")
def sequence_insert(n: Node) -> Value:
    return n.builder.sequence_insert(n[0], n[1], _position(n, 2))


@converts("SequenceErase")
def sequence_erase(n: Node) -> Value:
    return n.builder.sequence_erase(n[0], _position(n, 1))


@converts("SequenceAt")
def sequence_at(n: Node) -> Value:
    return n.builder.sequence_at(n[0], _position(n, 1))


def _position(n: Node, index: int) -> Value | None:
    value = n.get(index)
    return None if value is None else scalar(n, value)


@converts("SequenceLength")
def sequence_length(n: Node) -> Value:
    return n.builder.sequence_length(n[0])


@converts("ConcatFromSequence")
def concat_from_sequence(n: Node) -> Value:
    return n.builder.concat_from_sequence(n[0], axis=n.integer("axis"), new_axis=n.flag("new_axis"))


@converts("SplitToSequence")
def split_to_sequence(n: Node) -> Value:
    split = n.get(1)
    sizes = None if split is None else n.builder.cast(split, dtype="int64")
    return n.builder.split_to_sequence(
        n[0], sizes, axis=n.integer("axis", 0), keep_axis=n.flag("keepdims", True)
    )


@converts("SequenceMap")
def sequence_map(n: Node) -> list[Value]:
    """The body for each element of the first sequence, and of the others in parallel."""
    body, items = n.body("body"), n.all
    if not isinstance(n[0].type, SequenceType):
        raise UserError(f"{items[0]} is no sequence")

    def element(i: Value, *collected: Value) -> Any:
        args = [
            n.builder.sequence_at(x, i) if isinstance(x.type, SequenceType) else x for x in items
        ]
        results = body(*args)
        grown = zip(collected, results, strict=True)
        return [n.builder.sequence_insert(seq, value) for seq, value in grown]

    empty = [n.builder.sequence_empty(dtype=d) for d in _result_types(n)]
    return as_list(n.builder.loop(n.builder.sequence_length(items[0]), empty, element))


def _result_types(n: Node) -> list[Any]:
    """The element types of the body's outputs, which the file must declare."""
    outputs = n.graph("body").output
    return [element_type(o.type.tensor_type.elem_type, f"output {o.name}") for o in outputs]


# ---- optionals ----------------------------------------------------------------------------------


@converts("Optional")
def optional(n: Node) -> Value:
    if n.get(0) is not None:
        return n.builder.optional(n[0])
    type_ = n.type_proto("type")
    is_sequence = type_.WhichOneof("value") == "sequence_type"
    tensor = (type_.sequence_type.elem_type if is_sequence else type_).tensor_type
    dtype = element_type(tensor.elem_type, "an optional")
    return n.builder.optional_none(dtype=dtype, sequence=is_sequence)


@converts("OptionalHasElement")
def optional_has_element(n: Node) -> Value:
    if n.get(0) is None:
        return n.constant(False, "bool")
    return n.builder.optional_has(n[0])


@converts("OptionalGetElement")
def optional_get_element(n: Node) -> Value:
    return n.builder.optional_get(n[0])
