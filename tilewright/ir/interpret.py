"""Runs loop functions at any stage, slowly and literally: the oracle of tests.

Loops of every kind run in order, one iteration after the other. Accesses are checked against their
buffers, block variables against their domains; fresh memory holds garbage (NaN in floats), so that
reads before the first write are noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Call, Expr, Var
from tilewright.ir.interpret_expr import Array, ExprCompiler, Thunk, checked, lanes_at, plain
from tilewright.ir.starts import starts_of
from tilewright.ir.stmt import (
    Alloc,
    Assert,
    Block,
    Evaluate,
    For,
    Function,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.ir.text.printer import listing
from tilewright.ir.verify import verify
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError, nearest

Run = Callable[[], None]
#: A `while` with more iterations than this is considered endless.
MAX_ITERATIONS: Final = 10_000_000


def interpret(function: Function, *args: Any, **named: Any) -> None:
    """Run `function` on NumPy arrays (written in place) and scalars, by position or by name.

    Symbolic dimensions take their values from the arrays; those that no shape determines are given
    by name.
    """
    verify(function)
    machine = _Machine(function)
    with np.errstate(all="ignore"):
        _bind(function, machine, args, dict(named))
        machine.stmt(function.body)()


class _Machine(ExprCompiler):
    """Compiles statements to closures."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def stmt(self, stmt: Stmt) -> Run:
        return _STATEMENTS[type(stmt)](self, stmt)

    def for_(self, s: For) -> Run:
        env, var, extent, body = self.env, s.var, self.expr(s.extent), self.stmt(s.body)
        without_turns = starts_of(s)
        start = _nothing if without_turns is None else self.stmt(without_turns)

        def run() -> None:
            iterations = extent()
            if iterations <= 0:
                start()
            for i in range(iterations):
                env[var] = i
                body()

        return run

    def block(self, s: Block) -> Run:
        bindings = [self.expr(b) for b in s.bindings]
        extents = [self.expr(i.extent) for i in s.iters]
        predicate, body = self.expr(s.predicate), self.stmt(s.body)
        init = None if s.init is None else self.stmt(s.init)
        names = [i.var for i in s.iters]
        reducing = [i.var for i in s.iters if i.kind == "reduce"]
        env = self.env

        def run() -> None:
            env.update(zip(names, [b() for b in bindings], strict=True))
            if not predicate():
                return
            for var, extent in zip(names, extents, strict=True):
                if not 0 <= env[var] < extent():
                    raise self._error(s, f"{var.name} is {env[var]}, its extent {extent()}")
            if init is not None and all(env[v] == 0 for v in reducing):
                init()
            body()

        return run

    def _error(self, stmt: Stmt, reason: str) -> UserError:
        return UserError(
            f"cannot run {self.function.name}",
            reason=reason,
            listing=listing(self.function, {stmt: reason}),
        )

    def store(self, s: Store) -> Run:
        indices, value = [self.expr(i) for i in s.indices], self.expr(s.value)
        mask = None if s.mask is None else self.expr(s.mask)
        buffer, arrays, lanes = s.buffer, self.arrays, s.value.dtype.lanes

        def run_scalar() -> None:
            if mask is None or mask():
                array = arrays[buffer]
                array[checked(buffer, array, [i() for i in indices])] = value()

        def run_vector() -> None:
            array, values = arrays[buffer], value()
            happening = self.lanes_of(lanes, mask)
            for lane, at in lanes_at(buffer, array, [i() for i in indices], happening):
                array[at] = values[lane]

        return self._with_listing(s, run_vector if lanes > 1 else run_scalar)

    def _with_listing(self, stmt: Stmt, run: Run) -> Run:
        """Add a listing of the statement to errors."""

        def guarded() -> None:
            try:
                run()
            except UserError as error:
                if error.listing:
                    raise
                shown = listing(self.function, {stmt: error.reason})
                raise UserError(error.what, reason=error.reason, listing=shown) from None

        return guarded

    def alloc(self, s: Alloc) -> Run:
        shapes = [(b, [self.expr(d) for d in b.shape]) for b in s.buffers]
        body, arrays = self.stmt(s.body), self.arrays

        def run() -> None:
            for buffer, shape in shapes:
                arrays[buffer] = _rubbish([d() for d in shape], buffer.dtype)
            body()

        return run

    def if_(self, s: If) -> Run:
        condition, then = self.expr(s.condition), self.stmt(s.then)
        otherwise = _nothing if s.otherwise is None else self.stmt(s.otherwise)
        return self._with_listing(s, lambda: then() if condition() else otherwise())

    def while_(self, s: While) -> Run:
        condition, body = self.expr(s.condition), self.stmt(s.body)

        def run() -> None:
            iterations = 0
            while condition():
                body()
                iterations += 1
                if iterations > MAX_ITERATIONS:
                    raise self._error(s, f"the loop runs for over {MAX_ITERATIONS} iterations")

        return self._with_listing(s, run)

    def let(self, s: Let) -> Run:
        env, var, value, body = self.env, s.var, self.expr(s.value), self.stmt(s.body)

        def run() -> None:
            env[var] = value()
            body()

        return self._with_listing(s, run)

    def assert_(self, s: Assert) -> Run:
        condition, values = self.expr(s.condition), [self.expr(v) for v in s.values]

        def run() -> None:
            if not condition():
                message = s.message.format(*(v() for v in values)) if values else s.message
                raise UserError(message)

        return run

    def evaluate(self, s: Evaluate) -> Run:
        name = s.call.name if isinstance(s.call, Call) else ""
        if name == "prefetch":
            return _nothing
        call = self.expr(s.call)

        def run() -> None:
            call()

        return self._with_listing(s, run)

    def seq(self, s: Seq) -> Run:
        runs = [self.stmt(child) for child in s.statements]

        def run() -> None:
            for step in runs:
                step()

        return run


_STATEMENTS: dict[type[Stmt], Callable[[_Machine, Any], Run]] = {
    For: _Machine.for_,
    Block: _Machine.block,
    Store: _Machine.store,
    Alloc: _Machine.alloc,
    If: _Machine.if_,
    While: _Machine.while_,
    Let: _Machine.let,
    Assert: _Machine.assert_,
    Evaluate: _Machine.evaluate,
    Seq: _Machine.seq,
}


def _nothing() -> None:
    return None


def _rubbish(shape: list[int], dtype: DType) -> Array:
    if dtype.is_bool:
        return np.zeros(shape, bool)
    if dtype.is_float and (dtype.float_format is None or dtype.float_format.has_nan):
        return np.full(shape, np.nan).astype(dtype.numpy)
    return np.full(shape, dtype.max_value).astype(dtype.numpy)


# ---- arguments ----------------------------------------------------------------------------------


def _bind(
    function: Function, machine: _Machine, args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    given = _by_param(function, args, named)
    for var in (*(p for p in function.params if isinstance(p, Var)), *function.dims):
        value = given.get(var, named.get(var.name))
        if value is not None:
            machine.env[var] = plain(np.asarray(value).astype(var.dtype.numpy), var.dtype)
    for buffer in function.buffers:
        machine.arrays[buffer] = _array_for(function, buffer, given[buffer])
    for buffer in function.buffers:
        _bind_dims(machine, buffer)
    for buffer in function.buffers:
        _check_shape(function, machine, buffer)


def _by_param(
    function: Function, args: tuple[Any, ...], named: dict[str, Any]
) -> dict[Buffer | Var, Any]:
    names = [p.name for p in function.params]
    if len(args) > len(names):
        raise UserError(f"{function.name} takes {len(names)} arguments, not {len(args)}")
    known = {*names, *(d.name for d in function.dims)}
    for name in named:
        if name not in known:
            raise UserError(f"{function.name} has no parameter {name}", remedy=nearest(name, known))
    given: dict[Buffer | Var, Any] = dict(zip(function.params, args, strict=False))
    for param in function.params:
        if param not in given:
            if param.name not in named:
                raise UserError(f"{function.name} was not given {param.name}")
            given[param] = named[param.name]
    return given


def _array_for(function: Function, buffer: Buffer, value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise UserError(f"{function.name} takes a NumPy array for {buffer.name}")
    array = cast(Array, value)
    if array.dtype != buffer.dtype.numpy or array.ndim != buffer.ndim:
        raise UserError(
            f"{function.name} cannot take this array for {buffer.name}",
            reason=f"it is {array.dtype} of {array.ndim} dimensions, not {buffer}",
        )
    return array


def _bind_dims(machine: _Machine, buffer: Buffer) -> None:
    """Plain dimensions and strides take their values from the array."""
    array = machine.arrays[buffer]
    steps = [s // max(array.itemsize, 1) for s in array.strides]
    pairs = [*zip(buffer.shape, array.shape, strict=True)]
    pairs += zip(buffer.strides or (), steps, strict=False)
    for expr, value in pairs:
        if isinstance(expr, Var):
            machine.env.setdefault(expr, value)
    if isinstance(buffer.offset, Var):
        machine.env.setdefault(buffer.offset, 0)


def _check_shape(function: Function, machine: _Machine, buffer: Buffer) -> None:
    wanted = [_evaluated_dim(function, machine, d) for d in buffer.shape]
    if list(machine.arrays[buffer].shape) != wanted:
        raise UserError(
            f"{function.name} cannot take this array for {buffer.name}",
            reason=f"its shape is {list(machine.arrays[buffer].shape)}, not {wanted}",
        )


def _evaluated_dim(function: Function, machine: _Machine, dim: Expr) -> int:
    thunk: Thunk = machine.expr(dim)
    try:
        return thunk()
    except KeyError as missing:
        name = missing.args[0].name
        raise UserError(f"{function.name} does not know {name}", remedy=f"pass {name}=…") from None
