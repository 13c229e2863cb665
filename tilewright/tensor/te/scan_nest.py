"""The loops of a scan: the first steps are copied, the others run in order, in one loop."""

from __future__ import annotations

from tilewright.ir import Const, For, Iter, Load, Stmt, Store, Var, make_block, seq
from tilewright.tensor.te.compute import Compute
from tilewright.tensor.te.nest import FunctionScope, IndexAxis, compute_axes, compute_block, nest
from tilewright.tensor.te.scan import Scan
from tilewright.tensor.te.tensor import Tensor


def scan_nest(op: Scan, scope: FunctionScope) -> Stmt:
    """All of a scan: its outputs are the buffers of the states and the updates inside."""
    results = [scope.buffers[t] for t in op.outputs]
    starts = [_start(op, i, t, scope) for i, t in zip(op.init, op.outputs, strict=True)]
    inside = scope.with_buffers(
        {
            **dict(zip(op.states, results, strict=True)),
            **dict(zip(op.updates, results, strict=True)),
        }
    )
    time = Var(op.steps[-1].axes[0].name)
    steps = [_step(op, step, time, inside) for step in op.steps]
    return seq(*starts, For(time, op.count, "serial", seq(*steps), span=op.span))


def _start(op: Scan, init: Tensor, result: Tensor, scope: FunctionScope) -> Stmt:
    """Copies the init into the first steps of the result."""
    axes = [IndexAxis(Var(f"i{n}"), e, "spatial") for n, e in enumerate(init.shape)]
    iters = [Iter(Var(f"v{a.var.name}"), a.extent, a.kind) for a in axes]
    loops = [Var(a.var.name) for a in axes]
    indices = tuple(i.var for i in iters)
    value = Load(scope.buffers[init], indices)
    body = Store(scope.buffers[result], indices, value, span=op.span)
    name = scope.block_name(f"{result.name}_init")
    return nest(loops, axes, make_block(name, iters, loops, body, span=op.span), op.span)


def _step(op: Scan, step: Compute, time: Var, scope: FunctionScope) -> Stmt:
    """One compute at one step: its first axis is the time, which runs in order."""
    own, *axes = compute_axes(step)
    starts_at_zero = isinstance(op.first, Const) and op.first.value == 0
    ordered = IndexAxis(own.var, op.count, "ordered", None if starts_at_zero else op.first)
    loops = [Var(a.var.name) for a in axes]
    block = compute_block(step, [ordered, *axes], [time, *loops], scope)
    return nest(loops, axes, block, step.span)
