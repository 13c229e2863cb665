"""Index maps as text, so that traces can keep them: `(i, j) -> (j // 8, i, j % 8)`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from tilewright.arith import AffineMap
from tilewright.ir import Expr, Var, as_expr, free_vars, maximum, minimum
from tilewright.support.errors import UserError

#: An index map as users give it.
LayoutLike = AffineMap | Callable[..., Any] | str


def layout_text(layout: LayoutLike, rank: int) -> str:
    """A map of `rank` indices as text."""
    if isinstance(layout, str):
        return layout
    made = layout if isinstance(layout, AffineMap) else AffineMap.of(layout, rank)
    names = [v.name for v in made.inputs]
    if len(set(names)) < len(names):
        own = [Var(f"i{n}") for n in range(len(names))]
        made = AffineMap(tuple(own), made.apply(own))
    return repr(made)


def parse_layout(text: str) -> AffineMap:
    """The map that a text describes."""
    sides = text.split("->")
    if len(sides) != 2:
        raise _unreadable(text, "it has no `->`")
    try:
        names, outputs = (_elements(ast.parse(side.strip(), mode="eval").body) for side in sides)
    except SyntaxError as error:
        raise _unreadable(text, error.msg) from None
    inputs = {n.id: Var(n.id) for n in names if isinstance(n, ast.Name)}
    if len(inputs) != len(names):
        raise _unreadable(text, "its left side is not a list of different names")
    made = AffineMap(tuple(inputs.values()), tuple(_value(o, inputs, text) for o in outputs))
    assert all(free_vars(o) <= set(made.inputs) for o in made.outputs)
    return made


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _value(node: ast.expr, known: dict[str, Var], text: str) -> Expr:
    read = _READ.get(type(node))
    if read is None:
        raise _unreadable(text, f"`{ast.unparse(node)}` is no index")
    return read(node, known, text)


def _name(node: ast.Name, known: dict[str, Var], text: str) -> Expr:
    if node.id not in known:
        raise _unreadable(text, f"{node.id} is none of its indices")
    return known[node.id]


def _number(node: ast.Constant, _known: dict[str, Var], text: str) -> Expr:
    if type(node.value) is not int:
        raise _unreadable(text, f"{node.value!r} is no whole number")
    return as_expr(node.value)


def _binary(node: ast.BinOp, known: dict[str, Var], text: str) -> Expr:
    operation = _OPERATIONS.get(type(node.op))
    if operation is None:
        raise _unreadable(text, f"`{ast.unparse(node)}` is no index")
    return operation(_value(node.left, known, text), _value(node.right, known, text))


def _negated(node: ast.UnaryOp, known: dict[str, Var], text: str) -> Expr:
    if not isinstance(node.op, ast.USub):
        raise _unreadable(text, f"`{ast.unparse(node)}` is no index")
    return 0 - _value(node.operand, known, text)


def _call(node: ast.Call, known: dict[str, Var], text: str) -> Expr:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in ("min", "max") or len(node.args) != 2:
        raise _unreadable(text, f"`{ast.unparse(node)}` is no index")
    a, b = (_value(arg, known, text) for arg in node.args)
    return minimum(a, b) if name == "min" else maximum(a, b)


_OPERATIONS: Final[dict[type[ast.operator], Callable[[Expr, Expr], Expr]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_READ: Final[dict[type[ast.expr], Callable[[Any, dict[str, Var], str], Expr]]] = {
    ast.Name: _name,
    ast.Constant: _number,
    ast.BinOp: _binary,
    ast.UnaryOp: _negated,
    ast.Call: _call,
}


def _unreadable(text: str, reason: str) -> UserError:
    return UserError(
        f"cannot read the layout {text!r}",
        reason=reason,
        remedy="write it like (i, j) -> (j // 8, i, j % 8), or pass a function of the indices",
    )
