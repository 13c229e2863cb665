"""`break` and `continue` as flags: the loop IR has neither.

for i in range(n):            running = True
    a                         for i in range(n):
    if c:             -->         if running:
        break                         a
    b                                 if c:
                                          running = False
                                      if running:
                                          b
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir import Alloc, Buffer, Expr, Load, Span, Stmt, Store, const, seq
from tilewright.support.errors import InternalError


@dataclass(slots=True)
class LoopFlags:
    """The flags of one loop: `running` until it breaks, `going` until this iteration is over."""

    running: Buffer | None
    going: Buffer | None

    @staticmethod
    def of(breaks: bool, continues: bool) -> LoopFlags:
        running = _flag("running") if breaks else None
        return LoopFlags(running, _flag("going") if continues else None)

    @property
    def goes_on(self) -> Expr:
        """Whether the rest of this iteration is to run."""
        flag = self.going or self.running
        if flag is None:
            raise InternalError("a loop without jumps was asked whether it goes on")
        return Load(flag, ())

    def jump(self, leaves: bool, span: Span) -> Stmt:
        """`break` or `continue`."""
        ends = [self.running if leaves else None, self.going]
        return seq(*(_set(flag, False, span) for flag in ends if flag is not None))

    def around(self, loop: Stmt) -> Stmt:
        return _with_flag(self.running, loop)

    def within(self, body: Stmt) -> Stmt:
        return _with_flag(self.going, body)


def _flag(name: str) -> Buffer:
    return Buffer(name, "bool", (), scope="local")


def _set(flag: Buffer, value: bool, span: Span | None = None) -> Store:
    return Store(flag, (), const(value), None, span)


def _with_flag(flag: Buffer | None, body: Stmt) -> Stmt:
    return body if flag is None else Alloc((flag,), seq(_set(flag, True), body))


def jumps(node: ast.stmt) -> bool:
    """Whether `node` may leave the iteration of the loop around it."""
    return any(isinstance(n, ast.Break | ast.Continue) for n in _within(node))


def breaks_in(loop: ast.For | ast.While) -> list[ast.Break]:
    return [n for s in loop.body for n in _within(s) if isinstance(n, ast.Break)]


def continues_in(loop: ast.For | ast.While) -> list[ast.Continue]:
    return [n for s in loop.body for n in _within(s) if isinstance(n, ast.Continue)]


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and the nodes in it, except for loops, whose jumps are their own."""
    if isinstance(node, ast.For | ast.While):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _within(child)
