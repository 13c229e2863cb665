"""From a fused graph to the host program: one loop function that calls the kernels.

    def main(x: f32[n, 3], y: f32[n, 4], constants: u64[2]):
        with alloc() as (a: f32[n, 4]):
            kernel.dense(address_of(x[0, 0]), constants[0], address_of(a[0, 0]), n, 0)
            kernel.relu(address_of(a[0, 0]), address_of(y[0, 0]), n, 0)

Its parameters are the inputs, sequences and optionals by the address of a list; the outputs whose
shapes follow from those of the inputs; the addresses of the constants; a record for the other
outputs; and dimensions that only items of lists have. Intermediate values are buffers, each
allocated in the graph that computes it: `lower.plan_arena` places them in one piece of memory.
Values whose size is known only at run time are in numbered blocks of the heap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.graph.fusion.groups import KernelCall
from tilewright.graph.fusion.sharing import Joins, is_join, is_shared, part_offset
from tilewright.graph.host.calls import KernelInfo, call_kernel, check_dims, read_dims, store_dims
from tilewright.graph.host.control import lower_branch, lower_loop
from tilewright.graph.host.joins import copy_parts, place_parts
from tilewright.graph.host.lifetimes import computed_here, last_uses, views_of
from tilewright.graph.host.lists import adopt
from tilewright.graph.host.memory import Memory, is_tensor
from tilewright.graph.host.places import BufferPlace, Place
from tilewright.graph.host.sequences import lower_list_call
from tilewright.graph.ir import Array, Binding, Call, Function, Fused, Graph, If, Loop, Read, Value
from tilewright.graph.ir.types import dims_of, is_plain_dim
from tilewright.ir import Buffer, Param, Store, Var, call, cast, const
from tilewright.ir import Function as LoopFunction
from tilewright.support.errors import UserError


@dataclass(frozen=True)
class HostProgram:
    """The loop function of a graph, and its arguments besides inputs and outputs."""

    function: LoopFunction
    constants: list[Array]
    #: The symbolic dimensions that it takes, in order.
    dims: list[Var]
    #: The outputs that are parameters, by number; the others are returned in the record.
    direct: list[int]
    #: For each output that is returned: the record's index of its address, before its dimensions.
    records: dict[int, int]
    #: Where in the model each kernel call comes from, in the order of the calls.
    origins: list[str]


def lower_program(
    graph: Function, calls: Mapping[Binding, KernelCall], kernels: Mapping[str, KernelInfo]
) -> HostProgram:
    """The host program of `graph`, whose calls are kernels."""
    return _Lowering(graph, calls, kernels).program()


class _Lowering:
    def __init__(
        self,
        graph: Function,
        calls: Mapping[Binding, KernelCall],
        kernels: Mapping[str, KernelInfo],
    ) -> None:
        self._graph, self._calls, self._kernels = graph, calls, kernels
        dims = dict.fromkeys(d for p in graph.params for d in dims_of(p.type))
        self._memory = Memory(dims)
        self._origins: list[str] = []

    def program(self) -> HostProgram:
        m, graph = self._memory, self._graph
        inputs = [_parameter(p) for p in graph.params]
        direct = [k for k, r in enumerate(graph.results) if self._is_direct(r)]
        results = {
            k: Buffer(graph.outputs[k], graph.results[k].dtype, graph.results[k].shape)
            for k in direct
        }
        record = Buffer("record", "int64", (1 + sum(map(_words, graph.results)),))
        with m.nested() as scope:
            for value, param in zip(graph.params, inputs, strict=True):
                if isinstance(param, Buffer):
                    m.put(value, BufferPlace(param))
                else:
                    adopt(m, value, param)
            sinks = [
                BufferPlace(results[k]) if k in results else None for k in range(len(graph.results))
            ]
            self.graph(graph, sinks)
            records = self._hand_over(record, [k for k, s in enumerate(sinks) if s is None])
            m.release(list(scope.slots))
        body, table, constants = m.program(scope)
        loose = self._loose_dims()
        params = (*inputs, *results.values(), table, record, *loose)
        kernels = sorted(self._kernels.items())
        messages = {name: list(info.messages) for name, info in kernels}
        shared = {name: [info.name, *info.sizes] for name, info in kernels if info.sizes}
        # The program's own buffers, table and record, follow inputs and outputs.
        first = sum(isinstance(p, Buffer) for p in inputs) + len(results)
        attrs = {"kernels": messages, "own_buffers": (first, first + 1)}
        attrs |= {"shared": shared} if shared else {}
        function = LoopFunction(graph.name, params, body, attrs)
        dims = [*loose, *function.dims]
        return HostProgram(function, constants, dims, direct, records, self._origins)

    def _is_direct(self, value: Value) -> bool:
        """Whether callers can compute the size of a result from those of the inputs."""
        known = is_tensor(value) and all(map(self._memory.knows, dims_of(value.type)))
        return known and all(map(is_plain_dim, value.shape))

    def _loose_dims(self) -> list[Var]:
        """Dimensions that, among the inputs, only items of lists have."""
        params = self._graph.params
        shown = {d for p in params if is_tensor(p) for d in dims_of(p.type)}
        found = dict.fromkeys(d for p in params for d in dims_of(p.type))
        return [d for d in found if d not in shown]

    def _hand_over(self, record: Buffer, outputs: Sequence[int]) -> dict[int, int]:
        """Hand blocks and lists to the caller, blocks with their shapes."""
        m, records, at = self._memory, dict[int, int](), 0
        results = {k: self._graph.results[k] for k in outputs}
        places = {k: m.slot_for(value) for k, value in results.items()}
        # Handed over blocks are not freed if the program fails, so this comes last.
        for k, value in results.items():
            m.deliver(value, places[k])
        for k, value in results.items():
            records[k], slot = at, places[k].slot
            assert slot is not None
            numbers = [call(f"{slot.kind}_hand_over", const(slot.number))]
            numbers += map(m.expr, value.shape) if is_tensor(value) else []
            for number in numbers:
                m.emit(Store(record, (const(at),), cast(number, "int64")))
                at += 1
        return records

    # ---- graphs ---------------------------------------------------------------------------------

    def graph(self, graph: Graph, sinks: Sequence[Place | None]) -> None:
        """Lower the bindings of a graph, with its results in these places where one is given."""
        m = self._memory
        m.roots.update(views_of(graph))
        ends, before = last_uses(graph, m.roots), m.sinks
        m.sinks = {**before, **self._direct(graph, sinks)}
        joins = Joins(graph)
        m.sinks |= place_parts(m, joins)
        for index, binding in enumerate(graph.body):
            if is_join(binding):
                copy_parts(m, binding, joins)
            else:
                self._binding(binding, ends.get(index, ()))
            m.release(ends.get(index, ()))
        m.sinks = before
        for value, sink in zip(graph.results, sinks, strict=True):
            if sink is not None:
                m.deliver(value, sink)

    def _direct(self, graph: Graph, sinks: Sequence[Place | None]) -> dict[Value, Place]:
        """Values that can be computed directly in the place of a result."""
        found: dict[Value, Place] = {}
        roots = computed_here(graph)
        for value, sink in zip(graph.results, sinks, strict=True):
            if sink is not None and value in roots:
                found.setdefault(roots[value], sink)
        return found

    def _binding(self, binding: Binding, ending: Sequence[Value]) -> None:
        m, expr = self._memory, binding.expr
        if isinstance(expr, Call) and expr.op.how == "structural":
            lower_list_call(m, expr, binding.outputs[0], ending)
        elif isinstance(expr, Call | Fused):
            check_dims(m, binding)
            self._call(binding, ending)
        elif isinstance(expr, Read):
            read_dims(m, expr)
        elif isinstance(expr, If):
            lower_branch(m, binding, self.graph)
        elif isinstance(expr, Loop):
            lower_loop(m, binding, self.graph)
        else:
            raise UserError(f"{type(expr).__name__} cannot be compiled", listing=f"    {binding}")

    def _call(self, binding: Binding, ending: Sequence[Value]) -> None:
        m, expr = self._memory, binding.expr
        offset = part_offset(binding)
        if binding.is_view or offset is not None:
            source = expr.args[0]
            assert source is not None
            m.alias_part(binding.outputs[0], source, const(0) if offset is None else offset)
        elif isinstance(expr, Call) and expr.op.scalar:
            store_dims(m, binding.outputs[0], expr)
        else:
            kernel = self._calls[binding]
            self._origins.append(binding.origin)
            call_kernel(m, kernel, self._kernels[kernel.function.name], ending)


def kernel_bindings(graph: Graph) -> list[Binding]:
    """The bindings of a graph, and of those inside it, that are kernels."""
    found: list[Binding] = []
    pending = [graph]
    while pending:
        for binding in pending.pop().body:
            expr = binding.expr
            if isinstance(expr, Fused) or (isinstance(expr, Call) and _has_loops(binding, expr)):
                found.append(binding)
            else:
                pending.extend(expr.graphs)
    return found


def _has_loops(binding: Binding, expr: Call) -> bool:
    is_kernel = expr.op.how != "structural" and not expr.op.scalar
    return is_kernel and not is_shared(binding) and not is_join(binding)


def _parameter(value: Value) -> Param:
    """A buffer for a tensor, or the address of a list."""
    if not is_tensor(value):
        return Var(value.name, "uint64")
    return Buffer(value.name, value.dtype, value.shape)


def _words(value: Value) -> int:
    """Words of a result in the record: its address, and its dimensions."""
    return 1 + (value.ndim if is_tensor(value) else 0)
