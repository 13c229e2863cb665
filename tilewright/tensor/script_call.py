"""Inlines a call of a loop function."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.ir import (
    Assert,
    Block,
    Buffer,
    Const,
    Expr,
    Function,
    Let,
    Param,
    Stmt,
    Var,
    map_stmt,
    renew,
    replace_buffers,
    seq,
    substitute,
)
from tilewright.support.errors import nearest

if TYPE_CHECKING:
    from tilewright.tensor.script_values import ScriptValues


def written_out(
    reader: ScriptValues, node: ast.Call, function: Function, block_names: set[str]
) -> Stmt:
    """The body of `function` on the arguments of `node`; its blocks get names not in use yet."""
    given = _by_param(reader, node, function)
    buffers = {p: _buffer(reader, given[p], p) for p in function.buffers}
    scalars = {p: _scalar(reader, given[p], p) for p in function.params if isinstance(p, Var)}
    names = {p: Var(p.name, p.dtype) for p in scalars}
    values: dict[Var, Expr] = dict(names)
    checks = _bind_dims(reader, node, function, buffers, values)
    body = replace_buffers(renew(function.body, values), buffers)
    body = seq(*checks, map_stmt(body, lambda s: _renamed(s, block_names)))
    for param, value in scalars.items():
        body = Let(names[param], value, body)
    return body


def _by_param(reader: ScriptValues, node: ast.Call, function: Function) -> dict[Param, ast.expr]:
    given = dict(zip(function.params, node.args, strict=False))
    by_name = {p.name: p for p in function.params}
    for keyword in node.keywords:
        param = by_name.get(keyword.arg or "")
        if param is None or param in given:
            raise reader.error(
                keyword,
                f"{function.name} has no free parameter {keyword.arg}",
                remedy=nearest(keyword.arg or "", by_name),
            )
        given[param] = keyword.value
    if len(node.args) > len(function.params) or len(given) < len(function.params):
        count = len(node.args) + len(node.keywords)
        raise reader.error(
            node, f"{function.name} takes {len(function.params)} arguments, not {count}"
        )
    return given


def _buffer(reader: ScriptValues, node: ast.expr, param: Buffer) -> Buffer:
    value = reader.value(node)
    fits = isinstance(value, Buffer) and value.dtype is param.dtype and value.ndim == param.ndim
    if not fits:
        raise reader.error(node, f"{ast.unparse(node)} does not fit the parameter {param}")
    if not param.is_compact:
        raise reader.error(node, f"the parameter {param.name} has a layout of its own")
    return value


def _scalar(reader: ScriptValues, node: ast.expr, param: Var) -> Expr:
    value = reader.expr(node, param.dtype)
    if value.dtype is not param.dtype:
        raise reader.error(
            node, f"{param.name} is {param.dtype}, the argument {value.dtype}", remedy="convert it"
        )
    return value


def _bind_dims(
    reader: ScriptValues,
    node: ast.Call,
    function: Function,
    buffers: dict[Buffer, Buffer],
    values: dict[Var, Expr],
) -> list[Stmt]:
    """Bind dimensions; those that cannot be compared now are compared at run time."""
    pairs = [
        (param, wanted, actual)
        for param, buffer in buffers.items()
        for wanted, actual in zip(param.shape, buffer.shape, strict=True)
    ]
    for _, wanted, actual in pairs:
        if isinstance(wanted, Var):
            values.setdefault(wanted, actual)
    checks: list[Stmt] = []
    for param, wanted, actual in pairs:
        expected = substitute(wanted, values)
        if expected is actual:
            continue
        text = f"{function.name} takes {param} here"
        if isinstance(expected, Const) and isinstance(actual, Const):
            raise reader.error(node, f"{text}, not a dimension of {actual}")
        checks.append(Assert(expected == actual, text, (), reader.span(node)))
    return checks


def _renamed(stmt: Stmt, taken: set[str]) -> Stmt | None:
    if not isinstance(stmt, Block):
        return None
    name, count = stmt.name, 1
    while name in taken:
        name, count = f"{stmt.name}_{count}", count + 1
    taken.add(name)
    return None if name == stmt.name else replace(stmt, name=name)
