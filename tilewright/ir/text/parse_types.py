"""Parses the types of parameters and buffers, and annotations."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, cast

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Param
from tilewright.ir.text.parse_expr import ExprReader
from tilewright.ir.text.syntax import dotted, parts_of, special_float
from tilewright.support.dtype import DType


class TypeReader(ExprReader):
    """Reads parameters, the types of buffers, and annotations."""

    #: Whether an undefined name in the shape of a parameter is a symbolic dimension.
    _dims_are_implicit = False

    # ---- parameters and buffers ---------------------------------------------------------------

    def decorations(self, node: ast.FunctionDef) -> tuple[str, dict[str, Any]]:
        name, attrs = node.name, dict[str, Any]()
        for decorator in node.decorator_list:
            word = dotted(decorator.func) if isinstance(decorator, ast.Call) else None
            if word == "attrs":
                attrs = self.annotations(cast(ast.Call, decorator))
            elif word == "named":
                name = self.text(self.only_arg(cast(ast.Call, decorator)))
            else:
                raise self.error(decorator, f"unknown decorator {ast.unparse(decorator)}")
        return name, attrs

    def params(self, node: ast.FunctionDef) -> tuple[Param, ...]:
        """The parameters; scalars first, since shapes may use them."""
        args = self._plain_args(node)
        types = {a.arg: self._scalar_type(a) for a in args}
        scalars = {name: Var(name, dtype) for name, dtype in types.items() if dtype is not None}
        self.scopes[0].update(scalars)
        return tuple(scalars[a.arg] if a.arg in scalars else self._buffer_param(a) for a in args)

    def _plain_args(self, node: ast.FunctionDef) -> list[ast.arg]:
        args = node.args
        odd = [*args.posonlyargs, *args.kwonlyargs, args.vararg, args.kwarg]
        if any(odd) or args.defaults:
            raise self.error(node, f"{node.name} takes more than plain parameters")
        return args.args

    def _scalar_type(self, arg: ast.arg) -> DType | None:
        if arg.annotation is None:
            raise self.error(
                arg, f"{arg.arg} has no type", remedy=f"write {arg.arg}: f32[n], or f32"
            )
        kind = self.annotation(arg.annotation)
        return None if isinstance(kind, ast.Subscript) else self.dtype(kind)

    def annotation(self, node: ast.expr) -> ast.expr:
        """The annotation itself; a language built on this one may wrap it."""
        return node

    def _buffer_param(self, arg: ast.arg) -> Buffer:
        assert arg.annotation is not None
        self._dims_are_implicit = True
        buffer = self.buffer(arg.arg, self.annotation(arg.annotation))
        self._dims_are_implicit = False
        self.define(arg, arg.arg, buffer)
        return buffer

    def name(self, node: ast.Name) -> Any:
        if self._dims_are_implicit and self.find(node.id) is None:
            return self.dimension(node)
        return super().name(node)

    def dimension(self, node: ast.Name) -> Any:
        """An undefined name in a shape."""
        var = Var(node.id)
        self.scopes[0][node.id] = var
        return var

    def buffer(self, name: str, node: ast.expr, scope: str = "global") -> Buffer:
        """A buffer of the type `f32[16, n, strides(…), offset(…), scope("local"), align(64)]`."""
        if not isinstance(node, ast.Subscript):
            raise self.error(
                node, f"{name} has no shape", remedy="write f32[16, n]; f32[()] for a scalar"
            )
        dtype, shape = self.dtype(node.value), list[Expr]()
        extras: dict[str, Any] = {"scope": scope}
        for part in parts_of(node.slice):
            word = dotted(part.func) if isinstance(part, ast.Call) else None
            read = _BUFFER_EXTRAS.get(word or "")
            if read is None:
                shape.append(self.extent(part))
            else:
                key, value = read(self, cast(ast.Call, part))
                extras[key] = value
        return self.located(node, lambda: Buffer(name, dtype, shape, **extras))

    def extent(self, node: ast.expr) -> Expr:
        return self.expr(node)

    # ---- annotations ----------------------------------------------------------------------------

    def annotations(self, node: ast.Call) -> dict[str, Any]:
        """`word(key=value)`, or `word({"any key": value})`."""
        if node.args:
            return self.mapping(node.args[0])
        return {k.arg or "": self.literal(k.value) for k in node.keywords}

    def mapping(self, node: ast.expr) -> dict[str, Any]:
        if not isinstance(node, ast.Dict):
            raise self.error(node, f"{ast.unparse(node)} is no dict of annotations")
        return self.literal(node)

    def text(self, node: ast.expr) -> str:
        value = self.literal(node)
        if not isinstance(value, str):
            raise self.error(node, f"{ast.unparse(node)} is no text")
        return value

    def literal(self, node: ast.expr) -> Any:
        read = _LITERALS.get(type(node))
        if read is not None:
            return read(self, node)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            raise self.error(node, f"{ast.unparse(node)} is no literal") from None

    def literal_name(self, node: ast.Name) -> DType:
        return self.dtype(node)

    def literal_call(self, node: ast.Call) -> Any:
        if self.callee(node) == "float":
            return special_float(self.text(self.only_arg(node)))
        raise self.error(node, "this value has no text form", remedy="remove the annotation")

    def only_arg(self, node: ast.Call) -> ast.expr:
        if len(node.args) != 1 or node.keywords:
            raise self.error(node, f"{self.callee(node)} takes one operand")
        return node.args[0]


_BUFFER_EXTRAS: dict[str, Callable[[TypeReader, ast.Call], tuple[str, Any]]] = {
    "strides": lambda r, n: ("strides", [r.expr(a) for a in n.args]),
    "offset": lambda r, n: ("offset", r.expr(r.only_arg(n))),
    "scope": lambda r, n: ("scope", r.text(r.only_arg(n))),
    "align": lambda r, n: ("alignment", r.whole(r.only_arg(n))),
}
_LITERALS: dict[type[ast.expr], Callable[[TypeReader, Any], Any]] = {
    ast.Name: lambda r, n: r.literal_name(n),
    ast.Call: lambda r, n: r.literal_call(n),
    ast.List: lambda r, n: [r.literal(e) for e in n.elts],
    ast.Tuple: lambda r, n: tuple(r.literal(e) for e in n.elts),
    ast.Dict: lambda r, n: {
        r.literal(k): r.literal(v) for k, v in zip(n.keys, n.values, strict=True)
    },
}
