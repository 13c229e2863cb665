"""Parses script functions: the statements of the text form, and conveniences of Python."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tilewright.ir import (
    TRUE,
    Alloc,
    Assert,
    Block,
    Buffer,
    DType,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Param,
    Source,
    Span,
    Stmt,
    Store,
    SuiteHead,
    Var,
    While,
    loads_in,
    seq,
    with_inferred_regions,
)
from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_tuple
from tilewright.tensor.script_call import written_out
from tilewright.tensor.script_jumps import LoopFlags, breaks_in, continues_in, jumps
from tilewright.tensor.script_syntax import as_it_is, assignments, is_zero
from tilewright.tensor.script_values import ScriptValues


class ScriptReader(ScriptValues):
    """Parses the body of one script function."""

    def __init__(self, source: Source, captured: Mapping[str, Any]) -> None:
        super().__init__(source, captured)
        self._times_assigned: Counter[str] = Counter()
        #: The scalar variables declared by the suites around, innermost last.
        self._scalars: list[list[Buffer]] = []
        self._loops: list[LoopFlags] = []
        self._gone: set[str] = set()
        self._block_names: set[str] = set()
        self._own_name = ""

    def function(self, node: ast.FunctionDef) -> Function:
        self._times_assigned = assignments(node)
        self._own_name = node.name
        if node.body and isinstance(node.body[-1], ast.Return) and node.body[-1].value is None:
            node.body.pop()
        return super().function(node)

    def params(self, node: ast.FunctionDef) -> tuple[Param, ...]:
        """A type may take the place of a default: `A=f32["n"]`, which linters accept."""
        args, defaults = node.args.args, node.args.defaults
        for arg, default in zip(args[len(args) - len(defaults) :], defaults, strict=True):
            if arg.annotation is not None:
                raise self.error(default, f"{arg.arg} cannot have a default value")
            arg.annotation = default
        node.args.defaults = []
        return super().params(node)

    def decorations(self, node: ast.FunctionDef) -> tuple[str, dict[str, Any]]:
        return node.name, {}

    def span(self, node: ast.AST) -> Span:
        return self.source.span(node)

    # ---- suites ---------------------------------------------------------------------------------

    def suite(self, nodes: Sequence[ast.stmt]) -> Stmt:
        self._scalars.append([])
        with self.scope():
            body = self.statements(nodes)
            self._gone.update(self.scopes[-1])
        declared = self._scalars.pop()
        return Alloc(tuple(declared), body) if declared else body

    def statements(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """Statements after a jump run only if it was not taken."""
        for number, node in enumerate(nodes[:-1]):
            if self._loops and jumps(node):
                first, rest = nodes[: number + 1], nodes[number + 1 :]
                return super().statements([*first, _Rest(rest)])
        return super().statements(nodes)

    def statement(self, node: ast.stmt) -> Stmt | SuiteHead | None:
        if isinstance(node, _Rest):
            return If(self._loops[-1].goes_on, self.statements(node.nodes))
        read = _STATEMENTS.get(type(node))
        return self.located(node, read, self, node) if read else super().statement(node)

    # ---- assignments ----------------------------------------------------------------------------

    def assign(self, node: ast.Assign) -> Stmt | SuiteHead:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Tuple):
            return self._assign_several(node, target.elts, node.value)
        return super().assign(node)

    def _assign_several(self, node: ast.stmt, targets: list[ast.expr], value: ast.expr) -> Stmt:
        """`a, b = b, a`: all values are computed before any is stored."""
        if not isinstance(value, ast.Tuple):
            return self._take_apart(node, targets, self.value(value))
        if len(value.elts) != len(targets):
            raise self.error(node, f"there are {len(value.elts)} values for {len(targets)} names")
        values = [self._value_for(t, v) for t, v in zip(targets, value.elts, strict=True)]
        taken = [Var("taken", v.dtype) for v in values]
        stores = [
            self._store_to(node, target, var) for target, var in zip(targets, taken, strict=True)
        ]
        body = seq(*stores)
        for var, expr in reversed(list(zip(taken, values, strict=True))):
            body = Let(var, expr, body, self.span(node))
        return body

    def _take_apart(self, node: ast.stmt, targets: list[ast.expr], values: Any) -> Stmt:
        """`m, n = A.shape`: names for values that are known now."""
        if not is_tuple(values) or len(values) != len(targets):
            raise self.error(node, f"cannot take {len(targets)} values apart from this")
        for number, target in enumerate(targets):
            if not isinstance(target, ast.Name):
                raise self.error(target, f"{ast.unparse(target)} is no name")
            if self.find(target.id) is not values[number]:
                self.define(target, target.id, values[number])
        return seq()

    def _value_for(self, target: ast.expr, value: ast.expr) -> Expr:
        known = self.find(target.id) if isinstance(target, ast.Name) else self.value(target)
        is_typed = isinstance(known, Buffer | Load)
        return self.expr(value, known.dtype if is_typed else None)

    def _store_to(self, node: ast.stmt, target: ast.expr, value: Expr) -> Stmt:
        if isinstance(target, ast.Name):
            buffer = self._variable(target) or self._declare(target, value.dtype)
            return Store(buffer, (), value, None, self.span(node))
        element = self.value(target)
        if not isinstance(element, Load):
            raise self.error(target, f"cannot store to {ast.unparse(target)}")
        return Store(element.buffer, element.indices, value, None, self.span(node))

    def bind(
        self, node: ast.stmt, target: ast.Name, value: ast.expr, dtype: DType | None
    ) -> Stmt | SuiteHead:
        """`x = …`: a new name, or a store to a scalar variable."""
        word = self.word(value) if isinstance(value, ast.Call) else None
        if word in ("let", "alloc"):
            return super().bind(node, target, value, dtype)
        known = self.find(target.id)
        if isinstance(known, Var) and known is self.value(value):
            return seq()  # `n = A.shape[0]` where the annotation called it n already
        buffer = self._variable(target)
        if buffer is not None:
            if dtype not in (None, buffer.dtype):
                raise self.error(node, f"{target.id} is {buffer.dtype} already")
            return self._store_scalar(node, buffer, self.expr(value, buffer.dtype))
        if self._times_assigned[target.id] == 1:
            known = self.value(value)
            if isinstance(known, tuple | DType):
                self.define(target, target.id, known)
                return seq()
            return self.let(node, target, value, dtype)
        read = self.expr(value, dtype)
        return self._store_scalar(node, self._declare(target, dtype or read.dtype), read)

    def let(
        self, node: ast.stmt, target: ast.Name, value: ast.expr, dtype: DType | None
    ) -> SuiteHead:
        if dtype is not None and self.expr(value, dtype).dtype is not dtype:
            raise self._misfit(value, self.expr(value), target.id, dtype)
        return super().let(node, target, value, dtype)

    def _misfit(self, node: ast.AST, value: Expr, name: str, dtype: DType | None) -> UserError:
        return self.error(
            node, f"{name} is {dtype}, the value {value.dtype}", remedy=f"convert it: {dtype}(…)"
        )

    def _variable(self, target: ast.Name) -> Buffer | None:
        """The scalar variable of this name; None if there is none yet."""
        known = self.find(target.id)
        if known is None or (isinstance(known, Buffer) and not known.ndim):
            return known
        what = "a buffer; index it" if isinstance(known, Buffer) else "a loop or a fixed value"
        raise self.error(target, f"{target.id} cannot be assigned to", f"it is {what}")

    def _declare(self, target: ast.Name, dtype: DType) -> Buffer:
        buffer = Buffer(target.id, dtype, (), scope="local")
        self.define(target, target.id, buffer)
        self._scalars[-1].append(buffer)
        return buffer

    def _store_scalar(self, node: ast.stmt, buffer: Buffer, value: Expr) -> Store:
        if value.dtype is not buffer.dtype:
            raise self._misfit(node, value, buffer.name, buffer.dtype)
        return Store(buffer, (), value, None, self.span(node))

    def store(
        self, node: ast.stmt, target: ast.expr, value: ast.expr, mask: ast.expr | None = None
    ) -> Store:
        result = super().store(node, target, value, mask)
        if result.value.dtype.scalar is not result.buffer.dtype:
            raise self._misfit(value, result.value, result.buffer.name, result.buffer.dtype)
        return result

    def update(self, node: ast.AugAssign) -> Store:
        """`x += …`, `A[i] += …`."""
        element = self.operand(node.target)
        if not isinstance(element, Load):
            raise self.error(
                node.target,
                f"{ast.unparse(node.target)} cannot be assigned to",
                "it is a loop or a fixed value",
            )
        value = self.combined(node, node.op, element, self.operand(node.value))
        return Store(element.buffer, element.indices, value, None, self.span(node))

    # ---- statements -----------------------------------------------------------------------------

    def expression(self, node: ast.Expr) -> Stmt | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        if isinstance(node.value, ast.Call):
            word = self.word(node.value)
            callee = self.find_function(node.value)
            if callee is not None:
                return written_out(self, node.value, callee, self._block_names)
            if word == self._own_name:
                raise self.error(node, f"{word} calls itself", remedy="use a loop")
        read = super().expression(node)
        if isinstance(read, Evaluate) and not hasattr(read.call, "args"):
            raise self.error(node, "this line has no effect")
        return read

    def choice_statement(self, node: ast.If) -> Stmt | None:
        """`if` on a value that is known now keeps only the chosen side."""
        test = self.operand(node.test)
        if isinstance(test, bool):
            taken = node.body if test else node.orelse
            return self.suite(taken) if taken else None
        condition = self.condition(node.test)
        then = self.suite(node.body)
        otherwise = self.suite(node.orelse) if node.orelse else None
        return If(condition, then, otherwise, self.span(node))

    def condition(self, node: ast.expr) -> Expr:
        expr = self.expr(node)
        if not expr.dtype.is_bool:
            raise self.error(
                node, f"{ast.unparse(node)} is {expr.dtype}, not bool", remedy="compare it"
            )
        return expr

    def assertion(self, node: ast.Assert) -> Assert:
        condition, message = self.condition(node.test), node.msg
        if message is None:
            text = f"{ast.unparse(node.test)} does not hold"
            return Assert(condition, text, (), self.span(node))
        if not isinstance(message, ast.JoinedStr):
            return super().assertion(node)
        text, values = "", list[Expr]()
        for part in message.values:
            if isinstance(part, ast.FormattedValue):
                text += "{}"
                values.append(self.expr(part.value))
            else:
                text += str(cast(ast.Constant, part).value)
        return Assert(condition, text, tuple(values), self.span(node))

    def block(self, node: ast.With, call: ast.Call) -> Block:
        """Regions that are not declared are inferred."""
        block = super().block(node, call)
        self._block_names.add(block.name)
        return block if block.reads or block.writes else with_inferred_regions(block)

    def refused(self, node: ast.stmt) -> UserError:
        if isinstance(node, ast.Return):
            return self.error(
                node, "a script function returns nothing", remedy="write to a buffer parameter"
            )
        return super().refused(node)

    def undefined_remedy(self, name: str) -> str:
        if name in self._gone:
            return f"{name} ended with the suite that assigns it; assign it before that"
        return super().undefined_remedy(name)

    # ---- loops ----------------------------------------------------------------------------------

    def while_loop(self, node: ast.While) -> Stmt | SuiteHead:
        if node.orelse:
            raise self.error(node.orelse[0], "a loop has no else here")
        loop = self._loop(node, "serial")
        condition = self.condition(node.test)
        if loop.running is not None:
            running = Load(loop.running, ())
            condition = running if condition is TRUE else self.combine("and", running, condition)
        return loop.around(While(condition, self._loop_body(loop, node.body), self.span(node)))

    def for_loop(self, node: ast.For) -> Stmt | SuiteHead:
        target, call = self.loop_parts(node)
        starts, call = self._range(call)
        head = self.loop_head(call)
        head.extent, wrap_extent = self._fixed(head.extent, "extent")
        loop = self._loop(node, head.kind)
        var = Var(target.id, head.extent.dtype)
        with self.scope():
            value, wrap_start = starts(var)
            self.define(target, target.id, value)
            body = self._loop_body(loop, node.body)
        if loop.running is not None:
            body = If(Load(loop.running, ()), body)
        stmt = For(var, head.extent, head.kind, body, head.axis, head.annotations, self.span(node))
        return wrap_start(wrap_extent(loop.around(stmt)))

    def _loop(self, node: ast.For | ast.While, kind: str) -> LoopFlags:
        breaks = breaks_in(node)
        if breaks and kind != "serial":
            raise self.error(breaks[0], f"a {kind} loop cannot be left early", remedy="use range")
        return LoopFlags.of(bool(breaks), bool(continues_in(node)))

    def _loop_body(self, loop: LoopFlags, nodes: list[ast.stmt]) -> Stmt:
        self._loops.append(loop)
        body = self.suite(nodes)
        self._loops.pop()
        return loop.within(body)

    def jump(self, node: ast.Break | ast.Continue) -> Stmt:
        if not self._loops:
            raise self.error(node, "there is no loop to leave")
        return self._loops[-1].jump(isinstance(node, ast.Break), self.span(node))

    def _range(self, call: ast.Call) -> tuple[Callable[[Var], tuple[Any, Wrap]], ast.Call]:
        """`range(start, stop, step)` as a start and a loop from 0."""
        if len(call.args) < 2 or self.callee(call) == "thread":
            return (lambda var: (var, as_it_is)), call
        if len(call.args) > 3:
            raise self.error(call, f"{self.callee(call)} takes a start, a stop and a step")
        start, stop = self.operand(call.args[0]), self.operand(call.args[1])
        step = self.whole(call.args[2]) if len(call.args) == 3 else 1
        if step == 0:
            raise self.error(call.args[2], "a step of 0 leads nowhere")
        if isinstance(start, Expr):
            start, wrap = self._fixed(start, "start")
        else:
            wrap = as_it_is
        count = self._count(call, start, stop, step)
        shorter = ast.Call(call.func, [ast.copy_location(ast.Constant(count), call)], call.keywords)
        ast.copy_location(shorter, call)
        return (lambda var: (self._at(start, var, step), wrap)), shorter

    def _count(self, call: ast.Call, start: Any, stop: Any, step: int) -> Any:
        low, high = (start, stop) if step > 0 else (stop, start)
        distance = high if is_zero(low) else self.located(call, self.combine, "sub", high, low)
        size = abs(step)
        if size == 1:
            return distance
        return self.combine("floordiv", self.combine("add", distance, size - 1), size)

    def _at(self, start: Any, var: Var, step: int) -> Any:
        scaled = var if step == 1 else self.combine("mul", var, step)
        return scaled if is_zero(start) else self.combine("add", scaled, start)

    def _fixed(self, expr: Expr, name: str) -> tuple[Expr, Wrap]:
        """A loop's bounds are evaluated once, at its start, whatever the body stores."""
        if not loads_in(expr):
            return expr, as_it_is
        var = Var(name, expr.dtype)
        return var, lambda body: Let(var, expr, body)


Wrap = Callable[[Stmt], Stmt]


class _Rest(ast.stmt):
    """The statements after a jump."""

    def __init__(self, nodes: Sequence[ast.stmt]) -> None:
        super().__init__()
        self.nodes = nodes
        ast.copy_location(self, nodes[0])


_STATEMENTS: dict[type[ast.stmt], Callable[[ScriptReader, Any], Any]] = {
    ast.AugAssign: lambda r, n: r.update(n),
    ast.Break: lambda r, n: r.jump(n),
    ast.Continue: lambda r, n: r.jump(n),
}
