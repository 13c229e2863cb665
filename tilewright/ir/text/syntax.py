"""Pieces of Python's syntax tree, and special numbers, as the text form writes them."""

from __future__ import annotations

import ast
import math
import re
import struct
from collections.abc import Sequence

from tilewright.support.errors import UserError


def parts_of(node: ast.expr) -> Sequence[ast.expr]:
    """The items between the brackets of a subscript."""
    return node.elts if isinstance(node, ast.Tuple) else (node,)


def dotted(node: ast.AST) -> str | None:
    """A name, or several with dots between them."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join(reversed([*parts, node.id]))


def special_float(text: str) -> float:
    """An infinity or a NaN, whose bits follow it where they are unusual."""
    if text in ("inf", "-inf", "nan"):
        return float(text)
    if re.fullmatch(r"nan 0x[0-9a-f]{16}", text):
        value = struct.unpack(">d", bytes.fromhex(text[6:]))[0]
        if math.isnan(value):
            return value
    raise UserError(f'"{text}" is no special number', remedy='such are "inf", "-inf" and "nan"')
