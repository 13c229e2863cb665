"""Checks that a loop function is well formed. Run between all passes in tests.

Every variable and buffer is defined before it is used, and once; a block's body uses the block's
own variables, not those of the loops around it; types, lanes and numbers of indices fit; the
regions that a block declares cover its accesses. Whether indices stay within their buffers is for
`arith` to prove.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Call, Const, Expr, Load, Var
from tilewright.ir.stmt import (
    ITER_KINDS,
    LOOP_KINDS,
    Alloc,
    Assert,
    Block,
    Evaluate,
    For,
    Function,
    If,
    Iter,
    Let,
    Param,
    Region,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.ir.text.printer import listing
from tilewright.ir.verify_expr import access_faults, access_lanes, node_faults
from tilewright.ir.visit import all_exprs, child_exprs, child_stmts, free_vars, walk, walk_expr
from tilewright.support.dtype import DType, index
from tilewright.support.errors import UserError

#: Passes recurse over statements; deeper ones would exhaust Python's stack.
MAX_NESTING: Final = 128
_SHOWN: Final = 6


def verify(function: Function) -> None:
    """Raise a `UserError` that lists what is wrong, or return."""
    _require_shallow(function)
    verifier = _Verifier()
    verifier.function(function)
    if not verifier.faults:
        return
    culprits = {stmt: text for stmt, text in verifier.faults if stmt is not None}
    more = len(verifier.faults) - 1
    raise UserError(
        f"function {function.name} is not well formed",
        reason=verifier.faults[0][1] + (f" (and {more} more)" if more else ""),
        listing=listing(function, dict(list(culprits.items())[:_SHOWN])),
    )


def _require_shallow(function: Function) -> None:
    pending = [(function.body, 1)]
    while pending:
        stmt, depth = pending.pop()
        if depth > MAX_NESTING:
            raise UserError(
                f"function {function.name} nests statements too deeply",
                reason=f"more than {MAX_NESTING} levels",
                remedy="break it up",
            )
        pending.extend((s, depth + 1) for s in child_stmts(stmt))


class _Verifier:
    """Walks a function with the variables and buffers that are in scope."""

    def __init__(self) -> None:
        self.faults: list[tuple[Stmt | None, str]] = []
        self.vars: set[Var] = set()
        self.buffers: set[Buffer] = set()
        #: Variables of loops outside the innermost block, which its body must not mention.
        self.outside: set[Var] = set()
        self.loops: set[Var] = set()
        self.bound: set[Var | Buffer] = set()
        self.stands: set[Stmt] = set()
        self.blocks: Counter[str] = Counter()
        self.checked: set[Expr] = set()

    def fault(self, stmt: Stmt | None, text: str) -> None:
        self.faults.append((stmt, text))

    def require(self, holds: bool, stmt: Stmt | None, text: str) -> None:
        if not holds:
            self.fault(stmt, text)

    def function(self, function: Function) -> None:
        for param in function.params:
            self._param(param)
        for dim in function.dims:
            self.vars.add(dim)
            self.require(
                dim.dtype is index, None, f"the symbolic dimension {dim.name} is {dim.dtype}"
            )
        self.stmt(function.body)

    def _param(self, param: Param) -> None:
        self.require(param not in self.bound, None, f"the parameter {param.name} stands twice")
        self.bound.add(param)
        if isinstance(param, Var):
            self.vars.add(param)
        else:
            self.buffers.add(param)

    # ---- scopes ---------------------------------------------------------------------------------

    @contextmanager
    def binding(self, stmt: Stmt, *things: Var | Buffer) -> Generator[None]:
        """`things` are in scope within."""
        for thing in things:
            self.require(
                thing not in self.bound, stmt, f"{thing.name} is defined here for the second time"
            )
            self.bound.add(thing)
        variables = {t for t in things if isinstance(t, Var)}
        buffers = {t for t in things if isinstance(t, Buffer)}
        self.vars |= variables
        self.buffers |= buffers
        yield
        self.vars -= variables
        self.buffers -= buffers

    @contextmanager
    def inside_block(self) -> Generator[None]:
        """The variables of the loops around are out of scope within."""
        before = self.outside
        self.outside = self.loops & self.vars
        yield
        self.outside = before

    # ---- expressions ----------------------------------------------------------------------------

    def expr(self, stmt: Stmt, expr: Expr) -> None:
        for var in free_vars(expr):
            self._require_defined(stmt, var, expr)
        for node in walk_expr(expr):
            if isinstance(node, Load):
                self.access(stmt, node.buffer)
            if node not in self.checked:
                self.checked.add(node)
                for text in node_faults(node):
                    self.fault(stmt, text)

    def _require_defined(self, stmt: Stmt, var: Var, expr: Expr) -> None:
        if var not in self.vars:
            self.fault(stmt, f"{var.name} in `{expr}` is not defined here")
        elif var in self.outside:
            self.fault(
                stmt,
                f"{var.name} in `{expr}` is a loop outside the block; "
                "bind it to a variable of the block",
            )

    def access(self, stmt: Stmt, buffer: Buffer) -> None:
        self.require(buffer in self.buffers, stmt, f"the buffer {buffer.name} is not defined here")

    def typed(self, stmt: Stmt, expr: Expr, what: str, fits: bool, wanted: str) -> None:
        """Check an expression; `fits` says whether its type is what is wanted."""
        self.expr(stmt, expr)
        self.require(fits, stmt, f"{what} `{expr}` is {expr.dtype}, not {wanted}")

    def condition(self, stmt: Stmt, expr: Expr, what: str = "the condition") -> None:
        is_bool = expr.dtype.is_bool and not expr.dtype.is_vector
        self.typed(stmt, expr, what, is_bool, "bool")

    def whole(self, stmt: Stmt, expr: Expr, what: str) -> None:
        is_whole = expr.dtype.is_integer and not expr.dtype.is_vector
        self.typed(stmt, expr, what, is_whole, "an integer")

    def same(self, stmt: Stmt, expr: Expr, what: str, dtype: DType) -> None:
        self.typed(stmt, expr, what, expr.dtype is dtype, str(dtype))

    # ---- statements -----------------------------------------------------------------------------

    def stmt(self, stmt: Stmt) -> None:
        self.require(stmt not in self.stands, stmt, "the same statement object stands twice")
        self.stands.add(stmt)
        _STATEMENTS[type(stmt)](self, stmt)

    def for_(self, s: For) -> None:
        self.whole(s, s.extent, "the extent")
        name = s.var.name
        self.require(
            s.var.dtype is s.extent.dtype,
            s,
            f"{name} is {s.var.dtype}, its extent {s.extent.dtype}",
        )
        self.require(s.kind in LOOP_KINDS, s, f"there are no {s.kind} loops")
        self.require(
            (s.kind == "thread") == bool(s.axis), s, "thread loops, and only they, name an axis"
        )
        with self.binding(s, s.var):
            self.loops.add(s.var)
            self.stmt(s.body)

    def block(self, s: Block) -> None:
        self.blocks[s.name] += 1
        self.require(self.blocks[s.name] == 1, s, f"there are two blocks called {s.name}")
        self.require(
            len(s.iters) == len(s.bindings),
            s,
            f"block {s.name} has {len(s.iters)} variables but {len(s.bindings)} bindings",
        )
        for it, binding in zip(s.iters, s.bindings, strict=False):
            self._iter(s, it, binding)
        with self.binding(s, *(i.var for i in s.iters)):
            self.condition(s, s.predicate, "the predicate")
            with self.inside_block():
                self._block_inside(s)

    def _iter(self, s: Block, it: Iter, binding: Expr) -> None:
        self.require(it.kind in ITER_KINDS, s, f"there are no {it.kind} variables of blocks")
        self.whole(s, it.extent, f"the extent of {it.var.name}")
        self.same(s, binding, f"the value of {it.var.name},", it.var.dtype)
        self.require(
            it.var.dtype is it.extent.dtype,
            s,
            f"{it.var.name} is {it.var.dtype}, its extent {it.extent.dtype}",
        )

    def _block_inside(self, s: Block) -> None:
        for region in (*s.reads, *s.writes):
            self._region(s, region)
        if s.init is not None:
            self.stmt(s.init)
            reducing = {i.var for i in s.iters if i.kind == "reduce"}
            used = {e for e in all_exprs(s.init) if isinstance(e, Var)} & reducing
            for var in used:
                self.fault(s, f"the init of block {s.name} depends on {var.name}, which reduces")
        self.stmt(s.body)
        for stmt, text in _uncovered(s):
            self.fault(stmt, text)

    def _region(self, s: Block, region: Region) -> None:
        self.access(s, region.buffer)
        name = region.buffer.name
        self.require(
            len(region.ranges) == region.buffer.ndim,
            s,
            f"the region of {name} has {len(region.ranges)} ranges, the buffer "
            f"{region.buffer.ndim} dimensions",
        )
        for r in region.ranges:
            self.whole(s, r.start, f"the start of a region of {name},")
            self.whole(s, r.extent, f"the extent of a region of {name},")

    def store(self, s: Store) -> None:
        self.access(s, s.buffer)
        for text in access_faults(s.buffer, s.indices, s.mask):
            self.fault(s, text)
        for expr in (*s.indices, *(() if s.mask is None else (s.mask,))):
            self.expr(s, expr)
        dtype = s.buffer.dtype.with_lanes(access_lanes(s.indices))
        self.same(s, s.value, f"the value stored to {s.buffer.name},", dtype)

    def alloc(self, s: Alloc) -> None:
        for buffer in s.buffers:
            for part in (*buffer.shape, *(buffer.strides or ()), buffer.offset):
                self.whole(s, part, f"in the shape of {buffer.name}")
        with self.binding(s, *s.buffers):
            self.stmt(s.body)

    def if_(self, s: If) -> None:
        self.condition(s, s.condition)
        self.stmt(s.then)
        if s.otherwise is not None:
            self.stmt(s.otherwise)

    def while_(self, s: While) -> None:
        self.condition(s, s.condition)
        self.stmt(s.body)

    def let(self, s: Let) -> None:
        self.same(s, s.value, f"the value of {s.var.name},", s.var.dtype)
        with self.binding(s, s.var):
            self.stmt(s.body)

    def assert_(self, s: Assert) -> None:
        self.condition(s, s.condition)
        for value in s.values:
            self.whole(s, value, "the value in the message")
        count = s.message.count("{}")
        if s.values:
            self.require(
                count == len(s.values), s, f"the message has {count} places, {len(s.values)} values"
            )

    def evaluate(self, s: Evaluate) -> None:
        self.require(isinstance(s.call, Call), s, f"`{s.call}` is no call of an intrinsic")
        self.expr(s, s.call)

    def seq(self, s: Seq) -> None:
        for stmt in s.statements:
            self.stmt(stmt)


_STATEMENTS: dict[type[Stmt], Callable[[_Verifier, Any], None]] = {
    For: _Verifier.for_,
    Block: _Verifier.block,
    Store: _Verifier.store,
    Alloc: _Verifier.alloc,
    If: _Verifier.if_,
    While: _Verifier.while_,
    Let: _Verifier.let,
    Assert: _Verifier.assert_,
    Evaluate: _Verifier.evaluate,
    Seq: _Verifier.seq,
}


# ---- what a block declares ----------------------------------------------------------------------


def _uncovered(block: Block) -> Iterable[tuple[Stmt, str]]:
    """Accesses in a block that its regions do not cover, as far as constants show."""
    reads, writes = _by_buffer(block.reads), _by_buffer(block.writes)
    # A reduction, here or inside, reads its accumulator; that read is not declared.
    reduces = any(isinstance(s, Block) and s.init is not None for s in walk(block))
    readable = reads | writes if reduces else reads
    roots = [block.body] if block.init is None else [block.init, block.body]
    inner = {b for r in roots for s in walk(r) if isinstance(s, Alloc) for b in s.buffers}
    for stmt in (s for r in roots for s in walk(r) if not isinstance(s, Block)):
        if isinstance(stmt, Store) and stmt.buffer not in inner:
            text = _lack(stmt.buffer, stmt.indices, writes, "writes")
            if text:
                yield stmt, f"block {block.name} {text}"
        allowed = reads | writes if isinstance(stmt, Evaluate) else readable
        for load in _loads(stmt):
            text = (
                None if load.buffer in inner else _lack(load.buffer, load.indices, allowed, "reads")
            )
            if text:
                yield stmt, f"block {block.name} {text}"


def _loads(stmt: Stmt) -> Iterable[Load]:
    return (e for top in child_exprs(stmt) for e in walk_expr(top) if isinstance(e, Load))


def _by_buffer(regions: Iterable[Region]) -> dict[Buffer, list[Region]]:
    found: dict[Buffer, list[Region]] = {}
    for region in regions:
        found.setdefault(region.buffer, []).append(region)
    return found


def _lack(
    buffer: Buffer, indices: tuple[Expr, ...], declared: dict[Buffer, list[Region]], verb: str
) -> str | None:
    regions = declared.get(buffer)
    if regions is None:
        return f"{verb} {buffer.name} but does not declare it"
    if all(_surely_outside(indices, region) for region in regions):
        return f"{verb} {buffer.name} outside the region that it declares"
    return None


def _surely_outside(indices: tuple[Expr, ...], region: Region) -> bool:
    pairs = zip(indices, region.ranges, strict=False)
    return any(_is_beyond(i, r.start, r.extent) for i, r in pairs)


def _is_beyond(i: Expr, start: Expr, extent: Expr) -> bool:
    if not (isinstance(i, Const) and isinstance(start, Const) and isinstance(extent, Const)):
        return False
    return not start.value <= i.value < start.value + extent.value
