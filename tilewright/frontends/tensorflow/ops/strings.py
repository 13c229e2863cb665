"""Strings, where the graph has operators for them."""

from __future__ import annotations

from functools import reduce

from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import converts
from tilewright.graph import Value


@converts("StringJoin")
def join(n: Node) -> Value:
    separator = n.text("separator", "")
    b = n.builder

    def joined(a: Value, c: Value) -> Value:
        middle = b.string_concat(a, n.constant(separator, "string")) if separator else a
        return b.string_concat(middle, c)

    return reduce(joined, n.all)


@converts("StaticRegexFullMatch")
def regex_match(n: Node) -> Value:
    return n.builder.regex_match(n[0], pattern=n.text("pattern"))


@converts("StringLower", "StringUpper")
def change_case(n: Node) -> Value:
    flat = n.builder.reshape(n[0], shape=[-1])
    changed = n.builder.string_normalize(flat, case=n.op.removeprefix("String").lower())
    return n.builder.reshape(changed, shape=n[0].shape)
