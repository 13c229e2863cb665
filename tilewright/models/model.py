"""A compiled graph: run it, time it, inspect it at every level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.codegen import Code, backend_of
from tilewright.graph import (
    ANY,
    Array,
    HostProgram,
    OptionalType,
    PassContext,
    SequenceType,
    TensorType,
    UnknownType,
    Value,
    dims_of,
    is_plain_dim,
    module_text,
    precision_text,
)
from tilewright.graph import Module as GraphModule
from tilewright.ir import Call, Evaluate, Expr, Function, Var, function_text, walk
from tilewright.kernels.compiled import CompiledKernel
from tilewright.kernels.module import dim_of, unique_names
from tilewright.kernels.pipeline import host_code
from tilewright.models.constants import constant_bytes, copied_from_files
from tilewright.models.native import (
    GRAPH_TEXT,
    HOST_TEXT,
    SOURCE_TEXT,
    NativeModel,
    loops_text,
    target_info,
)
from tilewright.runtime import (
    ANY_SIZE,
    LIST_KINDS,
    Dim,
    ListSpec,
    NativeSpec,
    Program,
    TargetInfo,
    TensorSpec,
    checksum_of,
    seal_of,
)
from tilewright.support.denormals import Denormals
from tilewright.support.errors import UserError, nearest
from tilewright.target import Target

#: Graphs with more bytes of constants are not kept.
_KEPT_CONSTANTS: Final = 32 << 20


class Model(NativeModel):
    """A graph as native code."""

    def __init__(
        self,
        graph: GraphModule,
        host: HostProgram,
        lowered: Function,
        kernels: Mapping[str, CompiledKernel],
        functions: Mapping[str, Function],
        target: Target,
        threads: int | None,
    ) -> None:
        self._host, self._functions = host.function, functions
        # The program has packed copies of the constants: release the originals of large models.
        self._graph = graph if constant_bytes(graph) <= _KEPT_CONSTANTS else None
        constants = copied_from_files(host.constants, self._graph)
        self._graph_text = module_text(graph) if self._graph is None else ""
        pool = backend_of(target).threadpool(target)
        sealed = _Sealing(constants, pool, target_info(target))
        denormals = _denormals(target)
        made = host_code(lowered, target, denormals)
        # Some kernels share their code.
        parts = list(dict.fromkeys(k.code for k in kernels.values()))
        self._source = backend_of(target).source(made, parts)
        program = _program(graph, host, lowered, made, parts, target, sealed)
        super().__init__(program, constants, sealed.target, pool, threads)

    # ---- looking --------------------------------------------------------------------------------

    @property
    def graph(self) -> GraphModule:
        """The graph after all passes, with the groups that became kernels."""
        if self._graph is None:
            raise UserError(
                "the graph was not kept",
                reason="its constants take too much memory",
                remedy="look at it in a PassContext with a PassPrinter",
            )
        return self._graph

    @property
    def texts(self) -> dict[str, str]:
        graph = self._graph_text or module_text(self.graph)
        loops = {loops_text(name): function_text(f) for name, f in self._functions.items()}
        texts = {GRAPH_TEXT: graph, HOST_TEXT: function_text(self._host), **loops}
        return {**texts, SOURCE_TEXT: self._source} if self._source else texts

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def ir(self, name: str = "main") -> Function:
        if str(name) == self._host.name:
            return self._host
        if str(name) not in self._functions:
            raise UserError(f"no kernel {name}", remedy=nearest(name, self._functions))
        return self._functions[name]


def _program(
    graph: GraphModule,
    host: HostProgram,
    lowered: Function,
    made: Code,
    kernels: Sequence[bytes],
    target: Target,
    sealing: _Sealing,
) -> Program:
    backend = backend_of(target)
    is_compiled = not backend.why_not_compiled(target)
    main = graph.main
    names = unique_names(_dims([*main.params, *main.results], host.dims))
    program = Program(
        name=host.function.name,
        objects=backend.linked(kernels, target) if is_compiled else (),
        inputs=tuple(_spec(p, p.name, names) for p in main.params),
        outputs=tuple(_spec(r, n, names) for r, n in zip(main.results, main.outputs, strict=True)),
        dims=tuple(names[d] for d in host.dims),
        direct=tuple(host.direct),
        records=dict(host.records),
        messages=made.messages,
        origins=tuple(host.origins),
        calls=tuple(_kernels_called(lowered)),
        precision=precision_text(graph),
        denormals=_denormals(target),
    )
    if not is_compiled:
        return program
    code = made.object_code(sealing.seal(program))
    return replace(program, objects=(code, *program.objects))


def _denormals(target: Target) -> Denormals:
    """The treatment of denormals; code that sets no floating-point state keeps them."""
    return PassContext.current().denormals if target.kind.sets_float_state else "keep"


@dataclass(frozen=True)
class _Sealing:
    """The data that is sealed together with a program."""

    constants: Sequence[Array]
    pool: bytes
    target: TargetInfo

    def seal(self, program: Program) -> bytes:
        """The seal of a program without its host object."""
        checksums = [checksum_of(c) for c in self.constants]
        kernels = program.objects
        return seal_of(program, kernels, self.constants, checksums, self.pool, self.target)


def _kernels_called(program: Function) -> Iterator[str]:
    """The kernel of each call in a host program, in the order in which they are emitted."""
    for stmt in walk(program.body):
        if isinstance(stmt, Evaluate) and isinstance(stmt.call, Call):
            head, _, name = stmt.call.name.partition(".")
            if head == "kernel":
                yield name


def _spec(value: Value, name: str, names: Mapping[Var, str]) -> NativeSpec:
    if isinstance(value.type, TensorType):
        return TensorSpec(name, value.dtype, tuple(_dim(d, names) for d in value.shape))
    kinds, element = list[str](), value.type
    while isinstance(element, SequenceType | OptionalType):
        kinds.append("seq" if isinstance(element, SequenceType) else "opt")
        element = element.element
    assert isinstance(element, TensorType | UnknownType)
    shape = element.shape if isinstance(element, TensorType) else None
    known = {**names, ANY: ANY_SIZE}
    items = None if shape is None else tuple(_dim(d, known) for d in shape)
    return ListSpec(name, LIST_KINDS[" ".join(kinds)], element.dtype, items)


def _dim(dim: Expr, names: Mapping[Var, str]) -> Dim:
    """A dimension for callers; one that they cannot compute is only shown as text."""
    return dim_of(dim, names) if is_plain_dim(dim) else str(dim)


def _dims(values: Sequence[Value], first: Sequence[Var]) -> list[Var]:
    return list(dict.fromkeys([*first, *(d for v in values for d in dims_of(v.type))]))
