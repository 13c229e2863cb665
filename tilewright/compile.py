"""The pipeline: what happens between a definition and native code, one line per step."""

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

    `params` are weights in a file of their own and `inputs` example inputs, where a format needs
    them.

    `shapes` gives inputs other shapes, numbers or names of symbolic dimensions. `opt_level` goes
    from 0 (every operator by itself) to 3; that of the open `PassContext` unless given.

    `precision` says in what products are computed: "float32"; "bf16", with sums in float32, where
    the target is faster at it; "tf32", on GPUs since sm_80: of factors in float32, the first ten
    bits of their fractions; "float16", on GPUs; "float8", products by constant weights in floats of
    eight bits, on GPUs since sm_89; or "int8-dynamic", the same in bytes. On GPUs, "float16" and
    "bf16" are also what is stored between kernels, which compute in float32 all the same. Inputs
    and outputs keep their types.

    `denormals` says what becomes of numbers below the least normal one (2**-126 in float32):
    "flush" makes them zeros, since they are slow; "keep" computes with them. After a run the
    caller's floating-point state is as it was.
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
    # The graph with its weights as they were is gone by now.
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
    """Compile one loop function for `target`; one that nobody has scheduled gets a default.

    `checked` adds a bounds check to every access. `threads` is how many the module may use; it can
    be changed later. `denormals` is as for `compile`; a loop function flushes them unless told to
    keep them. A graph module becomes a `Model`.
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
    """What products of float32 are multiplied in, which both the target and the precision say."""
    from tilewright.graph import TF32

    if context.precision == TF32:
        return target.with_tf32(), context
    if target.tf32 and context.precision == "float32":
        context = replace(context, precision=TF32, _tokens=[])
    return target, context


# ---- graphs -------------------------------------------------------------------------------------


def graph_passes(target: Target) -> list[Step]:
    """The passes over a graph in order, each with the `opt_level` at which it starts."""
    from tilewright.graph import Step, passes
    from tilewright.kernels.folding import fold_natively

    folding = passes.folding_by(fold_natively)
    winograd = Step(passes.winograd(target), 3, "cpu")
    steps = [
        # What is a loop need not be left alone when functions are inlined.
        Step(passes.tail_recursion, 0),
        Step(passes.inline_functions, 0),
        # Looks for bytes that weights are made of, before these are computed.
        Step(passes.quantized_products(target, winograd), 2),
        Step(passes.simplify_inference, 1),
        Step(folding, 1),
        # Numbers of trips are known by now; what follows from them is folded below.
        Step(passes.unroll_loops, 2),
        Step(passes.legalize, 0),
        # Decompositions bring operators on constants, and shapes, that were not there before.
        Step(passes.simplify_inference, 1),
        Step(folding, 1),
        Step(passes.shape_arithmetic, 1),
        # Before factors are folded into weights, which only wide ones take. GPUs multiply float16.
        Step(passes.widen_images, 2, "cpu"),
        # Parameters are constants by now; the rules for convolutions see what is between them.
        Step(passes.sink_transposes, 1),
        # Weights are constants by now; the slices it makes are the rules' to move.
        Step(passes.combine_parallel(target), 2),
        Step(passes.algebra, 1),
        Step(passes.fold_scale, 2),
        # Of what the rules made of constants.
        Step(folding, 1),
        Step(passes.common_subexpressions, 1),
        Step(passes.dead_code, 0),
        # Weights have their last values by now, and products are joined.
        Step(passes.narrow_products(target, winograd), 0),
        # Looks at all uses of a value; weights are then packed by folding.
        Step(passes.plan_layouts(target), 2),
        Step(folding, 1),
        # Looks at the layouts that were chosen, and at weights.
        winograd,
        Step(passes.absorb_transposes, 2, "gpu"),
        # Scores that are never in memory; what is left is fused by single calls.
        Step(passes.fuse_attention(target), 2),
        # Products that are no part of attention any more.
        Step(passes.pad_operands(target), 2, "gpu"),
        # Weights that are unpacked now are not folded any more.
        Step(passes.unpack_panels(target), 2, "cpu"),
        # Of equal calls that were made one before; fusion puts each into what reads it.
        Step(passes.widen_where_read, 1, "cpu"),
        # Needs operators that have loops, and nothing dead that would count as a use.
        Step(passes.fuse(target), 1),
        # Looks at what kernels hand to each other.
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
    """Say, once for all decisions, that a record names what cannot be chosen any more."""
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
    """Native code for a graph that all passes have been over."""
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
    # What passes and LLVM have done with makes room for packed weights.
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
    """A context with the results of tuning that come with the package, if there are any."""
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
    """A model of another framework, by the front end that reads it."""
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
    """Let a model take inputs that do not fit its symbolic sizes, where it can be read again."""
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
    """`tilewright.compile` is this module and, to users, the function in it."""

    def __call__(self, *args: Any, **options: Any) -> RunnableModel:
        return compile(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
