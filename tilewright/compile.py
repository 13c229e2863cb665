"""The compilation pipeline, from a definition to native code, one line per step."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.ir import Function
from tilewright.kernels.build import as_permitted, build_loops
from tilewright.runtime import RunnableModel, let_files_go, return_free_memory
from tilewright.schedule import Schedule
from tilewright.support.collector import collecting_rarely
from tilewright.support.denormals import Denormals, denormals_of
from tilewright.support.errors import UserError
from tilewright.support.faults import during
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.frontends import Source
    from tilewright.graph import Decision, PassContext, Step
    from tilewright.graph import Module as Graph
    from tilewright.models.model import Model


def compile(
    model: Any,
    target: Target | str = "llvm",
    *,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    threads: int | None = None,
    opt_level: int | None = None,
    precision: str | None = None,
    denormals: Denormals | None = None,
    params: Any = None,
    inputs: Any = None,
) -> RunnableModel:
    """Compile a model: a graph module, or what a front end reads (a file, bytes, an object).

    `params` is a separate file of weights and `inputs` are example inputs, for formats that need
    them.

    `shapes` overrides the shapes of inputs, by numbers or names of symbolic dimensions. `opt_level`
    goes from 0 (one kernel per operator) to 3; the default is that of the open `PassContext`.

    `precision` is the type in which products (matrix products, convolutions) are computed:
    "float32"; "bf16", accumulated in float32, where that is faster on the target; "tf32", on GPUs
    since sm_80: float32 factors with the first ten bits of their fractions; "float16", on GPUs;
    "float8", products by constant weights in 8-bit floats, on GPUs since sm_89; or "int8-dynamic",
    the same in int8. On GPUs, "float16" and "bf16" also store the values between kernels in that
    type, while kernels still compute in float32. Inputs and outputs keep their types.

    `denormals` is the treatment of numbers below the least normal one (2**-126 in float32): "flush"
    replaces them by zeros, since they are slow; "keep" computes with them. After a run the caller's
    floating-point state is restored.
    """
    from tilewright.frontends import Source
    from tilewright.graph import Module as GraphModule
    from tilewright.graph import PassContext, passes
    from tilewright.reproducers import saving_reproducers

    context = PassContext.current()
    level = context.opt_level if opt_level is None else opt_level
    wanted = context.precision if precision is None else precision
    mode = context.denormals if denormals is None else denormals
    context = replace(context, opt_level=level, precision=wanted, denormals=mode, _tokens=[])
    target, context = _agreed(Target.of(target), context)
    context = _with_shipped(context, target)
    reported = saving_reproducers(target, context)
    given: Mapping[str, Sequence[Any]] = {} if shapes is None else shapes

    def compiled(graph: Graph) -> RunnableModel:
        with context, reported:
            return _compile_graph(graph, target, threads)

    with collecting_rarely(), reported:
        if isinstance(model, GraphModule):
            made = compiled(passes.bind_shapes(model, given))
        else:
            source = Source(model, params, inputs)
            made = _compile_source(source, given, compiled, reported)
    # The graph with the original weights has been released by now.
    return_free_memory()
    return made


def build(
    source: Function | Schedule | Graph,
    target: Target | str = "llvm",
    *,
    checked: bool = False,
    threads: int | None = None,
    denormals: Denormals | None = None,
) -> Any:
    """Compile one loop function for `target`; without a schedule it gets the default one.

    `checked` adds a bounds check to every access. `threads` is the number of threads the module may
    use; it can be changed later. `denormals` is as for `compile`; a loop function flushes them
    unless told to keep them. A graph module becomes a `Model`.
    """
    target = Target.of(target)
    if isinstance(source, Function | Schedule):
        return build_loops(source, target, checked, threads, denormals_of(denormals or "flush"))
    from tilewright.graph import PassContext
    from tilewright.reproducers import saving_reproducers

    graph, context = _graph_of(source), PassContext.current()
    context = replace(context, denormals=denormals or context.denormals, _tokens=[])
    target, context = _agreed(target, context)
    context = _with_shipped(context, target)
    with context, saving_reproducers(target, context, checked=checked):
        return _compile_graph(graph, target, threads, checked=checked)


def _agreed(target: Target, context: PassContext) -> tuple[Target, PassContext]:
    """Reconcile the target's and the context's choice between float32 and TF32 products."""
    from tilewright.graph import TF32

    if context.precision == TF32:
        return target.with_tf32(), context
    if target.tf32 and context.precision == "float32":
        context = replace(context, precision=TF32, _tokens=[])
    return target, context


# ---- graphs -------------------------------------------------------------------------------------


def graph_passes(target: Target) -> list[Step]:
    """The passes over a graph in order, each with the lowest `opt_level` at which it runs."""
    from tilewright.graph import Step, passes
    from tilewright.kernels.folding import fold_natively

    folding = passes.folding_by(fold_natively)
    winograd = Step(passes.winograd(target), 3, "cpu")
    steps = [
        # Before inlining, which leaves recursive functions alone.
        Step(passes.tail_recursion, 0),
        Step(passes.inline_functions, 0),
        # Looks for int8 constants that weights are dequantized from, before they are folded.
        Step(passes.quantized_products(target, winograd), 2),
        Step(passes.simplify_inference, 1),
        Step(folding, 1),
        # Trip counts are known by now; what follows from them is folded below.
        Step(passes.unroll_loops, 2),
        Step(passes.legalize, 0),
        # Decompositions have introduced operators on constants, and shape arithmetic.
        Step(passes.simplify_inference, 1),
        Step(folding, 1),
        Step(passes.shape_arithmetic, 1),
        # Before fold_scale, which folds factors into float32 weights only. GPUs multiply float16.
        Step(passes.widen_images, 2, "cpu"),
        # Parameters are constants by now; rules for convolutions see the operators between them.
        Step(passes.sink_transposes, 1),
        # Weights are constants by now; later rules can move the slices it makes.
        Step(passes.combine_parallel(target), 2),
        Step(passes.algebra, 1),
        Step(passes.fold_scale, 2),
        # Folds the constant expressions that the rules made.
        Step(folding, 1),
        Step(passes.common_subexpressions, 1),
        Step(passes.dead_code, 0),
        # Weights have their final values by now, and parallel products are joined.
        Step(passes.narrow_products(target, winograd), 0),
        # Looks at all uses of a value; weights are then packed by folding.
        Step(passes.plan_layouts(target), 2),
        Step(folding, 1),
        # Needs the chosen layouts and the weights.
        winograd,
        Step(passes.absorb_transposes, 2, "gpu"),
        # Keeps attention scores out of memory; the rest is fused by `fuse` below.
        Step(passes.fuse_attention(target), 2),
        # Only products outside attention.
        Step(passes.pad_operands(target), 2, "gpu"),
        # After the last folding, so that unpacked weights are not stored as constants.
        Step(passes.unpack_panels(target), 2, "cpu"),
        # Undoes common_subexpressions for these casts; fusion puts each into its reader.
        Step(passes.widen_where_read, 1, "cpu"),
        # Needs operators that have loops, and no dead code, which would count as a use.
        Step(passes.fuse(target), 1),
        # Looks at the values passed between kernels.
        Step(passes.narrow_values, 0, "gpu"),
    ]
    return [step for step in steps if step.device in ("", target.kind.device)]


def _compile_graph(
    module: Graph, target: Target, threads: int | None, *, checked: bool = False
) -> RunnableModel:
    from tilewright.graph import PassContext, run_passes
    from tilewright.models.native import NativeModel

    fused = run_passes(module, graph_passes(target))
    decided = tuple(PassContext.current().decided.values())
    _warn_of_refused(decided)
    made = compile_fused(fused, target, threads, checked=checked)
    if isinstance(made, NativeModel):
        made.decisions = decided
    return made


def _warn_of_refused(decisions: Sequence[Decision]) -> None:
    """Warn once, for all decisions, that a tuning record names an option that no longer exists."""
    refused = [d for d in decisions if d.refused]
    if refused:
        others = f" (and {len(refused) - 1} others)" if len(refused) > 1 else ""
        warnings.warn(
            f"the record for {refused[0]}{others} does not apply any more, so that the default is"
            f" taken: {refused[0].refused!r} is none of {', '.join(refused[0].options)}",
            stacklevel=2,
        )


def compile_fused(
    fused: Graph, target: Target, threads: int | None = None, *, checked: bool = False
) -> RunnableModel:
    """Native code for a graph after all passes."""
    from tilewright.graph import passes

    def native(part: Graph) -> Model:
        return _compile_native(part, as_permitted(target), threads, checked)

    with during("step", "native code", fused):
        if passes.is_native(fused.main):
            return native(fused)
        from tilewright.models.hosted import HostedModel

        return HostedModel.compiled(fused, native, target)


def _compile_native(fused: Graph, target: Target, threads: int | None, checked: bool) -> Model:
    from tilewright.graph import KernelTable, PassContext, kernel_bindings, lower_program
    from tilewright.kernels.compiled import Options, warn_of_notes, with_schedulers
    from tilewright.kernels.prepare import prepare_calls
    from tilewright.kernels.together import compile_kernels
    from tilewright.lower import lower_host
    from tilewright.models.constants import constants_of
    from tilewright.models.model import Model

    table = KernelTable()
    calls = {b: table(b) for b in kernel_bindings(fused.main)}
    context, functions = PassContext.current(), list(table.functions.values())
    options = Options(checked, context.denormals, merges=context.merges_kernels)
    tuned = with_schedulers(options, functions, context.schedulers.get(target.machine, {}))
    made = compile_kernels(functions, target, tuned)
    kernels = {function.name: kernel for function, kernel in zip(functions, made, strict=True)}
    warn_of_notes(kernels)
    # Release what passes and LLVM used, to make room for packed weights.
    let_files_go(v.constant for v in constants_of(fused) if v.constant is not None)
    return_free_memory()
    calls = prepare_calls(calls, kernels, threads)
    with during("step", "host program"):
        host = lower_program(fused.main, calls, kernels)
        lowered = lower_host(host.function, target)
    model = Model(fused, host, lowered, kernels, table.functions, target, threads)
    pairs = zip(functions, tuned, strict=True)
    model.schedulers = {f.name: o.scheduler for f, o in pairs if o is not options}
    return model


def _with_shipped(context: PassContext, target: Target) -> PassContext:
    """The context with the tuning records shipped with the package, if there are any."""
    from tilewright.shipped import with_shipped

    return with_shipped(context, as_permitted(target).machine)


def _graph_of(value: Any) -> Graph:
    from tilewright.graph import Module as GraphModule

    if isinstance(value, GraphModule):
        return value
    raise UserError(
        f"cannot build {type(value).__name__}",
        remedy="pass a loop function (te.function, @script), a Schedule or a graph module",
    )


def _compile_source(
    source: Source,
    shapes: Mapping[str, Sequence[Any]],
    compiled: Callable[[Graph], RunnableModel],
    reported: AbstractContextManager[None],
) -> RunnableModel:
    """Compile a model of another framework, read by its front end."""
    from tilewright.frontends import UnspecialisedError, front_end_of

    front_end = front_end_of(source)
    try:
        graph = front_end.convert(source, shapes, {})
    except UnspecialisedError as error:
        from tilewright.models.specialised import SpecialisedModel

        def build(values: Mapping[str, Any], sizes: Mapping[str, Sequence[int]]) -> Graph:
            with reported:
                return front_end.convert(source.again(), {**shapes, **sizes}, values)

        return SpecialisedModel(front_end.input_names(source), error, build, compiled)
    made = compiled(graph)
    _allow_disagreeing_sizes(made, source, shapes, compiled, reported)
    return made


def _allow_disagreeing_sizes(
    made: RunnableModel,
    source: Source,
    shapes: Mapping[str, Sequence[Any]],
    compiled: Callable[[Graph], RunnableModel],
    reported: AbstractContextManager[None],
) -> None:
    """Let a model recompile for inputs that break its symbolic sizes, if its source is cheap."""
    from tilewright.frontends import front_end_of
    from tilewright.models.apart import ApartModels, have_free_sizes

    if not have_free_sizes(made.inputs) or not source.is_cheap:
        return

    def read(others: Mapping[str, Sequence[Any]]) -> Graph:
        return front_end_of(source).convert(source.again(), {**shapes, **others}, {})

    def again(others: Mapping[str, Sequence[Any]]) -> RunnableModel:
        with reported:
            return _compile_source(source.again(), {**shapes, **others}, compiled, reported)

    made.apart = ApartModels(made, read, again)


class _CallableModule(ModuleType):
    """`tilewright.compile` is this module and, to users, the function `compile`."""

    def __call__(self, *args: Any, **options: Any) -> RunnableModel:
        return compile(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
