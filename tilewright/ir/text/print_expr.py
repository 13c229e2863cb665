"""Expressions as text, without recursion: chains of thousands of operations are common."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
)
from tilewright.ir.intrinsics import find_intrinsic
from tilewright.ir.text.names import Namer
from tilewright.support.dtype import DType, bool_, float32, index
from tilewright.support.errors import TilewrightError

#: A piece of text, or an operand with the least precedence that needs no parentheses there.
Part = str | tuple[Expr, int]
Parts = Sequence[Part]

#: Python's precedences, from the loosest.
TERNARY, OR, AND, NOT, COMPARE, BITOR, BITXOR, BITAND, SHIFT, SUM, PRODUCT, SIGN, ATOM = range(13)

OPERATORS: Final[dict[str, tuple[str, int]]] = {
    "or": ("or", OR),
    "and": ("and", AND),
    "eq": ("==", COMPARE),
    "ne": ("!=", COMPARE),
    "lt": ("<", COMPARE),
    "le": ("<=", COMPARE),
    "gt": (">", COMPARE),
    "ge": (">=", COMPARE),
    "bitor": ("|", BITOR),
    "bitxor": ("^", BITXOR),
    "bitand": ("&", BITAND),
    "shl": ("<<", SHIFT),
    "shr": (">>", SHIFT),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "floordiv": ("//", PRODUCT),
    "floormod": ("%", PRODUCT),
}
_SIGNS: Final = {"neg": ("-", SIGN), "bitnot": ("~", SIGN), "not": ("not ", NOT)}
_CANONICAL_NAN: Final = struct.pack("<d", math.nan)
#: A part of an expression that is used again is named if it has at least this many nodes.
_LONG: Final = 32
#: A message does not need more of an expression than this.
_ENOUGH: Final = 4000


def expr_text(expr: Expr, namer: Namer | None = None) -> str:
    """`expr` in the text form; without the names of a function, a very long one is cut off.

    A large part that is used several times is written once and named there: `(e := …)`.
    """
    if not expr.operands:
        return "".join(map(str, _PARTS[type(expr)](expr, namer or Namer())[1]))
    limit = _ENOUGH if namer is None else None
    shared = _worth_naming(expr) if limit is None else frozenset[Expr]()
    namer = namer or Namer()
    named: dict[Expr, str] = {}
    pieces: list[str] = []
    pending: list[Part] = [(expr, TERNARY)]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            pieces.append(part)
            continue
        if limit is not None and len(pieces) > limit:
            pieces.append("…")
            break
        node = part[0]
        if node in named:
            pieces.append(named[node])
        elif node in shared:
            named[node] = namer(Var("e", node.dtype))
            parts = _PARTS[type(node)](node, namer)[1]
            pending.extend(reversed(("(", named[node], " := ", *parts, ")")))
        else:
            pending.extend(reversed(_fitted(part, namer)))
    return "".join(pieces)


def _worth_naming(root: Expr) -> frozenset[Expr]:
    """The parts that are used more than once and would be long to repeat."""
    sizes: dict[Expr, int] = {}
    uses: dict[Expr, int] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        if node in sizes:
            pending.pop()
            continue
        missing = [o for o in node.operands if o not in sizes]
        if missing:
            pending.extend(missing)
            continue
        for operand in node.operands:
            uses[operand] = uses.get(operand, 0) + 1
        sizes[node] = 1 + sum(sizes[o] for o in node.operands)
    return frozenset(n for n, count in uses.items() if count > 1 and sizes[n] >= _LONG)


def _fitted(part: tuple[Expr, int], namer: Namer) -> Parts:
    node, least = part
    own, parts = _PARTS[type(node)](node, namer)
    return parts if own >= least else ("(", *parts, ")")


def number_text(value: bool | int | float, dtype: DType) -> str:
    """A constant, written so that it is parsed to the same bits."""
    if dtype is bool_ or dtype is index:
        return repr(value)
    literal = _float_text(float(value), dtype) if dtype.is_float else repr(value)
    bare = dtype is float32 and not literal.startswith('"')
    return literal if bare else f"{dtype.short}({literal})"


def _float_text(value: float, dtype: DType) -> str:
    if math.isnan(value):
        bits = struct.pack("<d", value)
        if bits == _CANONICAL_NAN:
            return '"nan"'
        return f'"nan 0x{bits[::-1].hex()}"'
    if math.isinf(value):
        return f'"{value}"'
    short = repr(float(str(np.float64(value).astype(dtype.numpy))))
    return short if Const(float(short), dtype).value == value else repr(value)


# ---- one row per node ---------------------------------------------------------------------------


def listed(items: Sequence[Expr]) -> list[Part]:
    """Expressions with commas between them."""
    parts: list[Part] = []
    for item in items:
        parts += [", ", (item, TERNARY)]
    return parts[1:]


def _var(node: Var, namer: Namer) -> tuple[int, Parts]:
    return ATOM, (namer(node),)


def _const(node: Const, _namer: Namer) -> tuple[int, Parts]:
    text = number_text(node.value, node.dtype)
    return (SIGN if text.startswith("-") else ATOM), (text,)


def _unary(node: Unary, _namer: Namer) -> tuple[int, Parts]:
    if node.op == "neg" and isinstance(node.a, Const):
        # `-1` is the constant.
        return ATOM, ("neg(", (node.a, TERNARY), ")")
    sign, own = _SIGNS[node.op]
    return own, (sign, (node.a, own))


def _binary(node: Binary, _namer: Namer) -> tuple[int, Parts]:
    if node.op not in OPERATORS:
        return ATOM, (f"{node.op}(", *listed((node.a, node.b)), ")")
    sign, own = OPERATORS[node.op]
    left = own + 1 if own == COMPARE else own
    return own, ((node.a, left), f" {sign} ", (node.b, own + 1))


def _select(node: Select, _namer: Namer) -> tuple[int, Parts]:
    parts = ((node.a, OR), " if ", (node.condition, OR), " else ", (node.b, TERNARY))
    return TERNARY, parts


def _cast(node: Cast, _namer: Namer) -> tuple[int, Parts]:
    to = node.dtype.scalar
    if isinstance(node.a, Const) or node.a.dtype.scalar is to:
        return ATOM, (f"cast({to.short}, ", (node.a, TERNARY), ")")
    return ATOM, (f"{to.short}(", (node.a, TERNARY), ")")


def _load(node: Load, namer: Namer) -> tuple[int, Parts]:
    element = element_parts(namer(node.buffer), node.indices)
    if node.mask is None:
        return ATOM, element
    return ATOM, ("load(", *element, ", ", (node.mask, TERNARY), ")")


def element_parts(name: str, indices: Sequence[Expr]) -> Parts:
    """An element of a buffer."""
    return (name, "[", *(listed(indices) if indices else ["()"]), "]")


def _call(node: Call, _namer: Namer) -> tuple[int, Parts]:
    if _goes_by_name(node):
        return ATOM, (f"{node.name}(", *listed(node.args), ")")
    rest: list[Part] = [", ", *listed(node.args)] if node.args else []
    return ATOM, (f'call({node.dtype.short}, "{node.name}"', *rest, ")")


def _goes_by_name(node: Call) -> bool:
    """Whether the plain call is parsed as this very node, its type included."""
    intrinsic = find_intrinsic(node.name)
    if intrinsic is None or not all(p.isidentifier() for p in node.name.split(".")):
        return False
    types = tuple(a.dtype for a in node.args)
    if intrinsic.accepts != "any" and any(t is not types[0] for t in types):
        return False
    try:
        return intrinsic.result(types) is node.dtype
    except (IndexError, TilewrightError):
        return False


def _ramp(node: Ramp, _namer: Namer) -> tuple[int, Parts]:
    return ATOM, ("ramp(", *listed((node.base, node.stride)), f", {node.dtype.lanes})")


def _broadcast(node: Broadcast, _namer: Namer) -> tuple[int, Parts]:
    return ATOM, ("broadcast(", (node.a, TERNARY), f", {node.dtype.lanes})")


_PARTS: dict[type[Expr], Callable[[Any, Namer], tuple[int, Parts]]] = {
    Var: _var,
    Const: _const,
    Unary: _unary,
    Binary: _binary,
    Select: _select,
    Cast: _cast,
    Load: _load,
    Call: _call,
    Ramp: _ramp,
    Broadcast: _broadcast,
}
