"""Models that Python runs in part: strings and image files, for instance, are left to Python.

So are functions, tuples and data types that no pass could eliminate.

The graph is run by the evaluator; its native parts are compiled, and called from there.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.graph import (
    Binding,
    Call,
    CallFunction,
    Function,
    Graph,
    Module,
    OpDef,
    TensorType,
    Value,
    evaluate,
    module_constants,
    module_text,
    parse_module,
    passes,
)
from tilewright.kernels.module import dim_of, unique_names
from tilewright.models.constants import copied_from_files
from tilewright.models.native import NativeModel, target_info
from tilewright.runtime import (
    Build,
    CompiledContents,
    HostedContents,
    Inputs,
    RunnableModel,
    TargetInfo,
    TensorSpec,
    ValueSpec,
    bind_inputs,
    in_order,
)
from tilewright.support.denormals import Denormals
from tilewright.target import Target

#: Compiles a module whose `main` is native.
CompileNative = Callable[[Module], NativeModel]


class HostedModel(RunnableModel):
    """A graph that Python runs, with native parts."""

    def __init__(
        self, outlined: Module, native: Mapping[str, NativeModel], target: TargetInfo, pool: bytes
    ) -> None:
        """`outlined` is a module whose functions in `native` are replaced by these models."""
        super().__init__()
        main = outlined.main
        self._specs = [_spec(v, v.name) for v in main.params]
        self._out = [_spec(v, n) for v, n in zip(main.results, main.outputs, strict=True)]
        self._outlined, self._native = outlined, native
        self._target, self._pool = target, pool
        #: The operators that Python runs, and how often each occurs.
        self.hosted = _names(outlined, native)
        self._module = _linked(outlined, native)

    @staticmethod
    def compiled(module: Module, compile_native: CompileNative, target: Target) -> HostedModel:
        """The model of a module, with its native parts compiled."""
        from tilewright.codegen import backend_of

        _say(_names(module))
        outlined = passes.outline(module)
        copied_from_files((), outlined)
        native = {
            name: compile_native(_as_module(function))
            for name, function in outlined.functions.items()
            if name.startswith(passes.NATIVE_PREFIX)
        }
        pool = backend_of(target).threadpool(target)
        return HostedModel(outlined, native, target_info(target), pool)

    @staticmethod
    def loaded(
        build: Build, contents: HostedContents, native: Mapping[str, NativeModel]
    ) -> HostedModel:
        """The model in an artifact."""
        outlined = parse_module(contents.graph, contents.constants)
        return HostedModel(outlined, native, build.target, build.pool)

    def as_build(self) -> Build:
        parts = {name: model.as_build().contents for name, model in self._native.items()}
        native = {n: part for n, part in parts.items() if isinstance(part, CompiledContents)}
        constants = module_constants(self._outlined)
        contents = HostedContents(module_text(self._outlined), constants, native)
        return Build(self._target, self._pool, contents)

    @property
    def inputs(self) -> tuple[TensorSpec | ValueSpec, ...]:
        return tuple(self._specs)

    @property
    def outputs(self) -> tuple[TensorSpec | ValueSpec, ...]:
        return tuple(self._out)

    @property
    def precision(self) -> str:
        """The precision of the largest native part."""
        parts = sorted(self._native.values(), key=lambda model: len(model.calls))
        return parts[-1].precision if parts else super().precision

    @property
    def denormals(self) -> Denormals:
        """The mode of the native parts; the others run in the caller's floating-point state."""
        modes: list[Denormals] = [part.denormals for part in self._native.values()]
        return modes[0] if modes else super().denormals

    @property
    def graph(self) -> Module:
        """The graph as it is run."""
        return self._module

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        if out:
            raise self._not_offered("write its outputs to given arrays")
        given = list(in_order(inputs, self._specs))
        tensors = [k for k, s in enumerate(self._specs) if isinstance(s, TensorSpec)]
        specs = [s for s in self._specs if isinstance(s, TensorSpec)]
        arrays, _ = bind_inputs([given[k] for k in tensors], specs)
        for k, array in zip(tensors, arrays, strict=True):
            given[k] = array
        return evaluate(self._module, given)


def _spec(value: Value, name: str) -> TensorSpec | ValueSpec:
    type_ = value.type
    if not isinstance(type_, TensorType):
        return ValueSpec(name, str(type_))
    from tilewright.ir import free_vars

    dims = dict.fromkeys(v for d in type_.shape for v in free_vars(d))
    names = unique_names(list(dims))
    return TensorSpec(name, type_.dtype, tuple(dim_of(d, names) for d in type_.shape))


def _names(module: Module, native: Mapping[str, NativeModel] | None = None) -> dict[str, int]:
    """The operators that Python runs, and how often each occurs."""
    found = [b.expr for b in passes.foreign_bindings(module.main)]
    called = [e for e in found if not (isinstance(e, CallFunction) and e.callee in (native or {}))]
    kinds = [e.op.name if isinstance(e, Call) else type(e).__name__ for e in called]
    return dict(Counter(kinds))


def _say(hosted: dict[str, int]) -> None:
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(hosted.items()))
    warnings.warn(
        f"parts of the model run on the host, not natively: {listed or 'its inputs or outputs'}",
        stacklevel=5,
    )


# ---- linking ------------------------------------------------------------------------------------


def _linked(module: Module, models: Mapping[str, NativeModel]) -> Module:
    """The module with calls of native functions replaced by calls of compiled code."""
    native = {name: _as_operator(name, model) for name, model in models.items()}
    functions = [f for name, f in module.functions.items() if name not in native]
    changed = [_with_operators(f, native) for f in functions]
    return Module([f for f in changed if isinstance(f, Function)], module.data_types.values())


def _as_module(function: Function) -> Module:
    names = [f"p{k}" for k in range(len(function.params))]
    for value, name in zip(function.params, names, strict=True):
        value.name = name
    return Module([Function("main", function.params, function.body, function.results)])


def _as_operator(name: str, model: NativeModel) -> OpDef:
    """An operator whose reference implementation is the compiled code."""

    def rule(*xs: Value) -> Any:
        del xs
        return ()

    def run(*arrays: Any) -> tuple[Any, ...]:
        return tuple(model.run(list(arrays)))

    rule.__name__ = name
    made = OpDef(rule, pure=False, host=True)
    made.reference(run)
    return made


def _with_operators(graph: Graph, native: dict[str, OpDef]) -> Graph:
    return graph.with_([_with_operator(b, native) for b in graph.body])


def _with_operator(binding: Binding, native: dict[str, OpDef]) -> Binding:
    expr = binding.expr
    if isinstance(expr, CallFunction) and isinstance(expr.callee, str) and expr.callee in native:
        return Binding(
            binding.outputs, Call(native[expr.callee], expr.operands, {}), binding.origin
        )
    if not expr.graphs:
        return binding
    graphs: Sequence[Graph] = [_with_operators(g, native) for g in expr.graphs]
    return Binding(binding.outputs, expr.with_graphs(graphs), binding.origin)
