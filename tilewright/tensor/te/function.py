"""`te.function`: a loop function from definitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tilewright.ir import Alloc, Buffer, Function, Stmt, Var, free_vars, seq, symbolic_dims
from tilewright.support.errors import UserError
from tilewright.tensor.te.compute import Compute
from tilewright.tensor.te.extern import Extern
from tilewright.tensor.te.nest import FunctionScope, compute_nest
from tilewright.tensor.te.scan import Scan
from tilewright.tensor.te.scan_nest import scan_nest
from tilewright.tensor.te.tensor import Definition, Placeholder, Tensor

Input = Tensor | Var


def function(
    inputs: Sequence[Input] | Input,
    outputs: Sequence[Tensor] | Tensor,
    name: str = "main",
    attrs: Mapping[str, Any] | None = None,
) -> Function:
    """The loop function that takes `inputs`, then `outputs`, and computes the outputs.

    Inputs are tensors and scalar variables. A tensor that has a definition may be an input too: it
    is then taken as given. All tensors in between are allocated at the top of the body, and each
    definition becomes one loop nest around one block of its name.
    """
    given = [inputs] if isinstance(inputs, Tensor | Var) else list(inputs)
    wanted = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    _check_parameters(name, given, wanted)
    tensors = [t for t in given if isinstance(t, Tensor)]
    ops = _in_order(name, wanted, tensors)
    _check_variables(name, ops, [*given, *wanted])
    inner = _inner_tensors(ops, set(wanted))
    scope = FunctionScope(_buffers([*tensors, *wanted, *inner]))
    body = seq(*(_NESTS[type(op)](op, scope) for op in ops))
    if inner:
        body = Alloc(tuple(scope.buffers[t] for t in inner), body)
    params = tuple(p if isinstance(p, Var) else scope.buffers[p] for p in (*given, *wanted))
    return Function(name, params, body, dict(attrs or {}))


def _buffers(tensors: Sequence[Tensor]) -> dict[Tensor, Buffer]:
    """A buffer for each tensor, with a unique name, as schedules use names."""
    made: dict[Tensor, Buffer] = {}
    taken: set[str] = set()
    numbers: defaultdict[str, Iterator[int]] = defaultdict(count)
    for tensor in tensors:
        tries = (f"{tensor.name}_{k}" if k else tensor.name for k in numbers[tensor.name])
        name = next(n for n in tries if n not in taken)
        taken.add(name)
        made[tensor] = Buffer(name, tensor.dtype, tensor.shape)
    return made


def _inner_tensors(ops: Iterable[Definition], wanted: set[Tensor]) -> list[Tensor]:
    found: list[Tensor] = []
    for op in ops:
        if isinstance(op, Scan):
            found.extend(op.within_step)
        found.extend(t for t in op.outputs if t not in wanted)
    return found


def _extern_block(op: Extern, scope: FunctionScope) -> Stmt:
    ins, outs = ([scope.buffers[t] for t in tensors] for tensors in (op.inputs, op.outputs))
    return op.block(scope.block_name(op.name), ins, outs)


_NESTS: dict[type[Definition], Callable[[Any, FunctionScope], Stmt]] = {
    Compute: compute_nest,
    Scan: scan_nest,
    Extern: _extern_block,
}


# ---- which definitions, in which order ----------------------------------------------------------


def _in_order(name: str, wanted: list[Tensor], given: list[Tensor]) -> list[Definition]:
    """The definitions that the outputs need, each after those it reads."""
    known = set(given)
    done: dict[Definition, None] = {}
    pending = [t.op for t in reversed(wanted)]
    while pending:
        op = pending[-1]
        missing = [t for t in op.inputs if t not in known and t.op not in done]
        _require_inputs(name, op, missing)
        if op in done or not missing:
            done.setdefault(op)
            pending.pop()
            continue
        pending.extend(t.op for t in reversed(missing))
    _require_not_given(name, done, known)
    return list(done)


def _require_inputs(name: str, op: Definition, missing: list[Tensor]) -> None:
    unlisted = [t.name for t in missing if isinstance(t.op, Placeholder)]
    if unlisted:
        raise UserError(
            f"te.function {name} is not given {', '.join(unlisted)}",
            reason=f"{op.where()} reads what is no input",
            remedy="list every placeholder among the inputs",
        )


def _require_not_given(name: str, ops: Iterable[Definition], given: set[Tensor]) -> None:
    for tensor in (t for op in ops for t in op.outputs):
        if tensor in given:
            raise UserError(
                f"te.function {name} takes {tensor.name} as an input",
                reason=f"it also has to compute it, for another result of {tensor.op.where()}",
                remedy="make all of its results inputs, or none",
            )


# ---- what can be wrong with the parameters ------------------------------------------------------


def _check_parameters(name: str, given: list[Any], wanted: list[Any]) -> None:
    if not name or name.startswith("llvm."):
        raise UserError(
            f"te.function cannot be called {name!r}",
            reason="names of native functions are not empty, and those of LLVM's own start so",
            remedy="give it another name",
        )
    for value in given:
        if not isinstance(value, Tensor | Var):
            raise UserError(
                f"te.function {name} cannot take {value!r}: it is no tensor or variable"
            )
    for value in wanted:
        _check_output(name, value, {id(v) for v in given})
    if not wanted:
        raise UserError(f"te.function {name} has no outputs")
    for role, values in (("inputs", given), ("outputs", wanted)):
        _check_distinct(name, role, values)


def _check_output(name: str, value: Any, given: set[int]) -> None:
    if not isinstance(value, Tensor):
        raise UserError(f"te.function {name} cannot compute {value!r}: it is no tensor")
    if id(value) in given:
        raise UserError(
            f"te.function {name} has {value.name} both as an input and as an output",
            remedy="copy it with a te.compute",
        )
    if isinstance(value.op, Placeholder):
        raise UserError(
            f"te.function {name} cannot compute {value.name}",
            reason="it is a placeholder",
            remedy="list it among the inputs",
        )


def _check_distinct(name: str, role: str, values: list[Any]) -> None:
    seen: set[int] = set()
    for value in values:
        if id(value) in seen:
            raise UserError(f"te.function {name} has {value.name} twice among its {role}")
        seen.add(id(value))


def _check_variables(name: str, ops: Iterable[Definition], params: list[Input]) -> None:
    """Every variable has to be bound by an index, a shape of a parameter, or a scalar input."""
    scalars = {p for p in params if isinstance(p, Var)}
    known = scalars.union(symbolic_dims(p for p in params if isinstance(p, Tensor)))
    for op in ops:
        steps = op.steps if isinstance(op, Scan) else (op,)
        for step in steps:
            _check_bound(name, step, known)


def _check_bound(name: str, op: Definition, known: set[Var]) -> None:
    own, used = set(op.axes), set[Var]()
    for tensor in op.outputs:
        used.update(*map(free_vars, tensor.shape))
    if isinstance(op, Compute):
        used.update(*map(free_vars, op.values))
        for axis in op.reduced_axes:
            own.add(axis.var)
            used.update(free_vars(axis.extent))
    unbound = used - own - known
    if unbound:
        names = ", ".join(sorted(v.name for v in unbound))
        raise UserError(
            f"te.function {name} cannot compute {op.name}: nothing gives {names} a value",
            reason=f"{op.where()} uses it, but it is no index there and no input",
            remedy="reduce over it if it is a reduce axis; otherwise list it among the inputs",
        )
