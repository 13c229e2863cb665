"""Tilewright behind torch.compile, which finds it by an entry point.

    net = torch.compile(net, backend="tilewright", options={"precision": "bf16"})

AOTAutograd gives a graph without mutations, of which the forward part is compiled the first time it
is called. Where no gradients are wanted, parameters and buffers become constants of the code;
torch's version counters tell when one has changed, and the graph is compiled anew. Where gradients
are wanted, parameters stay inputs, and torch computes the backward part eagerly. What cannot be
compiled runs eagerly, with one warning that says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
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
#: How often weights may change before they are taken for inputs.
_MOST_CHANGES: Final = 3
#: Operators that torch would take apart, and that have converters.
_KEPT: Final = frozenset(
    """silu hardswish hardsigmoid softplus mish upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
    pixel_shuffle pixel_unshuffle _fused_rms_norm""".split()
)

_version: Final = attrgetter("_version")


def tilewright(
    gm: Any, example_inputs: Sequence[Any], *, options: Any = None, **ignored: Any
) -> Any:
    """The back end: a graph of Dynamo's as a function."""
    del ignored
    chosen = _checked(options or {})

    def forward(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        del inputs
        return _CompiledGraph(graph, chosen, frozen=()).boxed()

    def inference(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        del inputs
        frozen = _weights() if chosen.get("freeze", True) else ()
        return _CompiledGraph(graph, chosen, frozen).boxed()

    compiler = _backends.aot_autograd(
        fw_compiler=forward,
        bw_compiler=_eager,
        inference_compiler=inference,
        decompositions=_decompositions(),
    )
    return compiler(gm, example_inputs)


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in OPTIONS:
            raise UserError(f"there is no option {name}", remedy=nearest(str(name), OPTIONS))
    return dict(options)


def _decompositions() -> dict[Any, Any]:
    table = _decomp.core_aten_decompositions()
    return {k: f for k, f in table.items() if k.name().split("::")[-1].split(".")[0] not in _KEPT}


def _weights() -> tuple[int, ...]:
    """The numbers of the arguments that are parameters and buffers, and that nothing changes."""
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
    """A graph that is compiled when it is first called, and again if its weights change."""

    def __init__(self, graph: Any, options: Mapping[str, Any], frozen: Sequence[int]) -> None:
        self._graph, self._frozen = graph, tuple(frozen)
        self._options = {k: v for k, v in options.items() if k != "freeze"}
        self._weights: list[Any] = []
        self._versions: list[int] = []
        self._changes = 0
        self._run: Callable[[list[Any]], Any] | None = None

    def boxed(self) -> Callable[[list[Any]], Any]:
        """The function that AOTAutograd calls, with a list that it may empty."""

        def run(args: list[Any]) -> Any:
            made = self._run
            if made is None or not self._is_current(args):
                made = self._made(args)
            return made(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _is_current(self, args: list[Any]) -> bool:
        weights = self._weights
        if not weights:
            return True
        for k, known in zip(self._frozen, weights, strict=True):
            if args[k] is not known:
                return False
        return list(map(_version, weights)) == self._versions

    def _made(self, args: list[Any]) -> Callable[[list[Any]], Any]:
        if self._weights:
            self._changes += 1
            if self._changes >= _MOST_CHANGES:
                self._frozen = ()
        self._weights = [args[k] for k in self._frozen]
        self._versions = list(map(_version, self._weights))
        try:
            self._run = self._compiled()
        except (TilewrightError, NotImplementedError) as error:
            _warn(error)
            self._weights = []
            self._run = _eager(self._graph, ())
        return self._run

    def _compiled(self) -> Callable[[list[Any]], Any]:
        _require_cpu(self._graph)
        _require_no_places(self._graph)
        constants = dict(zip(self._frozen, self._weights, strict=True))
        graph = from_graph(self._graph, constants)
        model = compile_model(graph.module, **self._options)
        metas = _outputs(self._graph)
        readers = [_as_size if _is_size(m) else _as_tensor for m in metas]
        readers = [r for r, given in zip(readers, graph.gives, strict=True) if given]
        run, takes = model.outputs_for, graph.takes
        whole = all(graph.gives)

        def call(args: list[Any]) -> Any:
            given = [as_array(args[k]) for k in takes]
            args.clear()
            results = run(given, ())
            made = [read(r) for read, r in zip(readers, results, strict=True)]
            if whole:
                return made
            left = iter(made)
            return [next(left) if gives else None for gives in graph.gives]

        return call


# ---- crossing the border ------------------------------------------------------------------------


def as_array(given: Any) -> Any:
    """A tensor as an array over the same memory; copied where it has gaps."""
    if not isinstance(given, torch.Tensor):
        return np.asarray(given, np.int64)
    if given.requires_grad or given.is_conj() or given.is_neg():
        given = given.detach().resolve_conj().resolve_neg()
    try:
        return given.numpy()
    except TypeError:
        return tensor_array(given)


def _as_tensor(array: Any) -> Any:
    if array.dtype.kind != "V" and array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    bits = torch.from_numpy(array.view(np.int16 if array.itemsize == 2 else np.uint8))
    return bits.view(getattr(torch, array.dtype.name))


def _as_size(array: Any) -> int:
    return int(array)


def _is_size(meta: Any) -> bool:
    return isinstance(meta, int | torch.SymInt)


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
    """Refuse places in the memory of an argument that are counted from where it begins.

    torch calls the graph with tensors that lie elsewhere in theirs, and does not say so.
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
    """Say once that a graph runs eagerly, and why."""
    text = f"tilewright runs a graph eagerly: {error}"
    if text not in _told:
        _told.add(text)
        warnings.warn(text, stacklevel=2)
