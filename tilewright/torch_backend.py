"""Tilewright as a backend of torch.compile, registered by an entry point.

    net = torch.compile(net, backend="tilewright", options={"precision": "bf16"})

AOTAutograd gives a graph without mutations, whose forward part is compiled on its first call.
Without gradients, parameters and buffers become constants of the code; torch's version counters
tell when one has changed, and the graph is then recompiled. With gradients, parameters stay inputs,
and torch computes the backward part eagerly. What cannot be compiled runs eagerly, with one warning
that gives the reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from tilewright.compile import compile as compile_model
from tilewright.frontends import from_graph, tensor_array
from tilewright.support.errors import TilewrightError, UserError, nearest

torch: Any = import_module("torch")
_guards: Any = import_module("torch._guards")
_backends: Any = import_module("torch._dynamo.backends.common")
_decomp: Any = import_module("torch._decomp")

#: What `options` may hold; all but `freeze` are those of `tilewright.compile`.
OPTIONS: Final = ("precision", "threads", "opt_level", "denormals", "target", "freeze")
#: After this many recompilations for changed weights, they become inputs.
_MOST_CHANGES: Final = 3
#: Operators that have converters and must not be decomposed by torch. Its decomposition of
#: attention does not fit the derivatives.
_KEPT: Final = frozenset(
    """_scaled_dot_product_flash_attention_for_cpu silu hardswish hardsigmoid softplus mish
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_bicubic2d upsample_trilinear3d pixel_shuffle pixel_unshuffle _fused_rms_norm
    multilabel_margin_loss_forward""".split()
)


def tilewright(
    gm: Any, example_inputs: Sequence[Any], *, options: Any = None, **ignored: Any
) -> Any:
    """The backend: compiles a graph of Dynamo's into a function."""
    del ignored
    chosen = _checked(options or {})
    are_flat = not any(isinstance(x, list | tuple | dict) for x in example_inputs)
    made: list[_CompiledGraph] = []

    def forward(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        del inputs
        return _CompiledGraph(graph, chosen, frozen=()).boxed()

    def inference(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        frozen = _weights() if chosen.get("freeze", True) else ()
        compiled = _CompiledGraph(graph, chosen, frozen)
        if are_flat and len(inputs) == len(example_inputs) and _is_left_alone():
            made.append(compiled)
        return compiled.boxed()

    compiler = _backends.aot_autograd(
        fw_compiler=forward,
        bw_compiler=_eager,
        inference_compiler=inference,
        decompositions=_decompositions(),
    )
    wrapped = compiler(gm, example_inputs)
    return made[0].instead_of(wrapped) if len(made) == 1 else wrapped


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in OPTIONS:
            raise UserError(f"there is no option {name}", remedy=nearest(str(name), OPTIONS))
    return dict(options)


def _decompositions() -> dict[Any, Any]:
    table = _decomp.core_aten_decompositions()
    return {k: f for k, f in table.items() if k.name().split("::")[-1].split(".")[0] not in _KEPT}


#: Fields of AOTAutograd's metadata that are nonzero where it must do work around each call.
_AROUND: Final = tuple(
    """num_mutated_inp_runtime_indices num_mutated_graph_handled_indices num_outputs_aliased
    num_intermediate_bases num_graphsafe_rng_states is_rng_op_functionalized dynamic_outputs
    tokens""".split()
)


def _is_left_alone() -> bool:
    """Whether AOTAutograd passes the graph's arguments and results on as they are."""
    context = _guards.TracingContext.try_get()
    meta = None if context is None else context.fw_metadata
    if meta is None or any(getattr(meta, name, True) for name in _AROUND):
        return False
    tensors = (*meta.subclass_inp_meta, *meta.subclass_fw_graph_out_meta)
    are_plain = all(type(t).__name__ == "PlainTensorMeta" for t in tensors)
    return are_plain and meta.grad_enabled_mutation is None


def _weights() -> tuple[int, ...]:
    """The indices of arguments that are parameters or buffers and are not mutated."""
    context = _guards.TracingContext.try_get()
    meta = None if context is None else context.fw_metadata
    if meta is None:
        return ()
    changed = {k for k, info in enumerate(meta.input_info) if info.mutates_data}
    return tuple(k for k in meta.static_input_indices if k not in changed)


def _eager(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    del inputs

    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return graph.forward(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _CompiledGraph:
    """A graph that is compiled on its first call, and again when its weights change."""

    def __init__(self, graph: Any, options: Mapping[str, Any], frozen: Sequence[int]) -> None:
        self._graph, self._frozen = graph, tuple(frozen)
        self._options = {k: v for k, v in options.items() if k != "freeze"}
        #: The weights that are compiled as constants: index, tensor, version.
        self._known: list[tuple[int, Any, int]] = []
        self._changes = 0
        self._run: Callable[[list[Any]], Any] | None = None
        self._is_eager = False

    def boxed(self) -> Callable[[list[Any]], Any]:
        """The function that AOTAutograd calls, with a list of arguments that it may clear."""

        def run(args: list[Any]) -> Any:
            made = self._run
            if made is None or not self._is_current(args):
                made = self._compile_for(args)
            return made(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def instead_of(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        """A direct call of the compiled code, bypassing AOTAutograd's wrapper, which adds nothing.

        The wrapper is still called until the code is compiled, and where torch runs the graph
        eagerly.
        """

        def run(*args: Any) -> Any:
            made = self._run
            if made is None or self._is_eager or not self._is_current(args):
                return wrapped(*args)
            return made(list(args))

        return run

    def _is_current(self, args: Sequence[Any]) -> bool:
        for k, known, version in self._known:
            if args[k] is not known or known._version != version:
                return False
        return True

    def _compile_for(self, args: list[Any]) -> Callable[[list[Any]], Any]:
        if self._known:
            self._changes += 1
            if self._changes >= _MOST_CHANGES:
                self._frozen = ()
        # Inference tensors have no version counter that would show changes.
        kept = [k for k in self._frozen if not args[k].is_inference()]
        self._known = [(k, args[k], args[k]._version) for k in kept]
        try:
            self._run = self._compiled()
        except (TilewrightError, NotImplementedError) as error:
            _warn(error)
            self._known = []
            self._run, self._is_eager = _eager(self._graph, ()), True
        return self._run

    def _compiled(self) -> Callable[[list[Any]], Any]:
        _require_cpu(self._graph)
        _require_no_places(self._graph)
        constants = {k: tensor for k, tensor, _ in self._known}
        graph = from_graph(self._graph, constants)
        model = compile_model(graph.module, **self._options)
        metas = [m for m, gives in zip(_outputs(self._graph), graph.gives, strict=True) if gives]
        readers = [_reader(m, order) for m, order in zip(metas, graph.orders, strict=True)]
        run, takes = model.outputs_for, graph.takes

        def call(args: list[Any]) -> list[Any]:
            arrays = [as_array(args[k]) for k in takes]
            args.clear()
            return [read(r) for read, r in zip(readers, run(arrays, ()), strict=True)]

        if all(graph.gives):
            return call

        def with_gaps(args: list[Any]) -> list[Any]:
            left = iter(call(args))
            return [next(left) if gives else None for gives in graph.gives]

        return with_gaps


# ---- conversion between torch and NumPy ---------------------------------------------------------


def as_array(given: Any) -> Any:
    """A tensor as an array that shares its memory; copied where it is not contiguous."""
    try:
        return given.detach().numpy() if given.requires_grad else given.numpy()
    except (RuntimeError, TypeError):
        # A view with lazy negation, or a type that NumPy does not have.
        return tensor_array(given)
    except AttributeError:
        return np.asarray(given, np.int64)


def _reader(meta: Any, order: Sequence[int]) -> Callable[[Any], Any]:
    """Converts an array to torch's result; `order` is the order of the array's dimensions."""
    if isinstance(meta, int | torch.SymInt):
        return int
    read = _as_tensor(meta.dtype)
    if not order:
        return read
    back = [order.index(k) for k in range(len(order))]
    return lambda array: read(array).permute(back)


def _as_tensor(dtype: Any) -> Callable[[Any], Any]:
    try:
        if np.dtype(str(dtype).removeprefix("torch.")).isbuiltin == 1:
            return torch.from_numpy
    except TypeError:
        pass
    bits = np.int16 if dtype.itemsize == 2 else np.uint8
    return lambda array: torch.from_numpy(array.view(bits)).view(dtype)


def _outputs(graph: Any) -> list[Any]:
    *_, output = graph.graph.nodes
    return [n.meta.get("val") if hasattr(n, "meta") else n for n in output.args[0]]


def _require_cpu(graph: Any) -> None:
    for node in graph.graph.nodes:
        meta = node.meta.get("val")
        if isinstance(meta, torch.Tensor) and meta.device.type != "cpu":
            raise UserError(
                f"{node.name} is on {meta.device}", reason="only the CPU is compiled for"
            )


def _require_no_places(graph: Any) -> None:
    """Refuse `as_strided` views of an argument with an absolute offset into its storage.

    torch may call the graph with tensors at other offsets in their storage, and does not say so.
    """
    held = {_memory(n) for n in graph.graph.nodes if n.op == "placeholder"} - {None}
    for node in graph.graph.nodes:
        if "as_strided" not in str(node.target) or _memory(node.args[0]) not in held:
            continue
        if len(node.args) > 3 or node.kwargs.get("storage_offset") is not None:
            raise UserError(
                f"{node.name} looks at the memory that an argument is part of",
                remedy="leave out storage_offset, or clone the tensor first",
            )


def _memory(node: Any) -> int | None:
    meta = node.meta.get("val")
    return meta.untyped_storage()._cdata if isinstance(meta, torch.Tensor) else None


_told: set[str] = set()


def _warn(error: Exception) -> None:
    """Warn once that a graph runs eagerly, and why."""
    text = f"tilewright runs a graph eagerly: {error}"
    if text not in _told:
        _told.add(text)
        warnings.warn(text, stacklevel=2)
