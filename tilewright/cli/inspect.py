"""`tilewright inspect`: a model on every level."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilewright.cli.command import Command, Exit
from tilewright.cli.loading import graph_of, is_artifact, native, open_model
from tilewright.cli.options import add_compile_options, add_model
from tilewright.support.errors import UserError, nearest

if TYPE_CHECKING:
    from tilewright.cli.console import Console
    from tilewright.models.native import NativeModel

#: The options that ask for a level of kernels, with the field of `Levels` they show.
_LEVELS = {
    "loops": "loops",
    "schedule": "scheduled",
    "code": "code",
    "llvm": "code",
    "asm": "asm",
}


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_compile_options(parser)
    levels = parser.add_argument_group("levels (KERNEL: a name or its beginning; all if left out)")
    levels.add_argument("--graph", action="store_true", help="the graph with its fused groups")
    helps = {
        "loops": "loops as defined; 'main' is the host program",
        "schedule": "loops as scheduled",
        "code": "code in the language of the target's back end: LLVM IR, or C",
        "llvm": "the same",
        "asm": "assembly",
    }
    for option, text in helps.items():
        levels.add_argument(f"--{option}", nargs="?", const="", metavar="KERNEL", help=text)


def _run(args: argparse.Namespace, console: Console) -> Exit:
    model = open_model(args, console)
    asked = {k: getattr(args, k) for k in _LEVELS if getattr(args, k) is not None}
    if not args.graph and not asked:
        if is_artifact(args.model):
            _builds(args, console)
        return _overview(model, console)
    if args.graph:
        text = str(graph_of(native(model, "graph")))
        console.result(graph=text)
        console.text(text)
    for option, name in asked.items():
        shown = {k: _level(model, k, option) for k in _chosen(model, name, option)}
        console.result(**{option: shown})
        for kernel, text in shown.items():
            console.text(f"# {kernel}\n{text}\n")
    return Exit.DONE


def _chosen(model: Any, name: str, option: str) -> list[str]:
    kernels: tuple[str, ...] = native(model, option).kernels
    if option == "loops" and name == "main":
        return ["main"]
    found = [k for k in kernels if k.startswith(name)]
    if not found:
        raise UserError(f"no kernel {name}", remedy=nearest(name, kernels))
    return found


def _level(model: Any, kernel: str, option: str) -> str:
    if option == "loops":
        return str(model.ir(kernel))
    from tilewright.kernels.levels import kernel_levels
    from tilewright.kernels.pipeline import DEFAULTS

    by = model.schedulers.get(kernel, DEFAULTS.scheduler)
    levels = kernel_levels(model.ir(kernel), model.target, model.denormals, by)
    return str(getattr(levels, _LEVELS[option]))


# ---- the overview -------------------------------------------------------------------------------


def _overview(model: Any, console: Console) -> Exit:
    from tilewright.models.native import NativeModel

    inputs, outputs = ([str(s) for s in specs] for specs in (model.inputs, model.outputs))
    console.result(kind=type(model).__name__, inputs=inputs, outputs=outputs)
    rows: list[tuple[str, Any]] = [
        *(("input", s) for s in inputs),
        *(("output", s) for s in outputs),
    ]
    if isinstance(model, NativeModel):
        target, operators = str(model.target), _operators(graph_of(model))
        console.result(target=target, kernels=list(model.kernels), operators=operators)
        console.result(precision=model.precision, denormals=model.denormals)
        rows += [
            ("target", target),
            ("precision", model.precision),
            ("denormals", model.denormals),
            ("kernels", len(model.kernels)),
            *_memory(model, console),
            *_machine_code(model, console),
        ]
        rows.append(("operators", ", ".join(f"{n} × {k}" for k, n in operators.items())))
    console.facts(rows)
    return Exit.DONE


def _memory(model: NativeModel, console: Console) -> list[tuple[str, Any]]:
    from tilewright.lower import arena_plan

    plan = arena_plan(model.ir("main"), side_by_side=model.target.host is not None)
    total = sum(p.size for p in plan.places)
    memory = {**model.memory, "live": plan.live, "unshared": total, "values": len(plan.places)}
    console.result(memory=memory)
    shared = f"{len(plan.places)} values of {total / 1e6:.2f} MB share {plan.size / 1e6:.2f} MB"
    shared += f", of which {plan.live / 1e6:.2f} MB are live at once"
    known = [f"{name} {size / 1e6:.2f} MB" for name, size in model.memory.items()]
    return [("memory", ", ".join(known)), ("arena", shared)]


def _machine_code(model: NativeModel, console: Console) -> list[tuple[str, Any]]:
    """Whether kernels of a GPU are loaded as they are, or compiled by the driver first."""
    if model.target.kind.backend != "cuda":
        return []
    held = model.launches
    count = sum("machine_code" in said for said in held.values())
    console.result(machine_code={"launches": len(held), "assembled": count})
    rest = "" if count == len(held) else "; the driver compiles the others when they are loaded"
    return [("machine code", f"of {count} of {len(held)} launches, for {model.target.cpu}{rest}")]


def _builds(args: argparse.Namespace, console: Console) -> None:
    """The targets that an artifact holds code for."""
    from tilewright.models.artifact import describe

    info = describe(args.model, trusted=args.trusted)
    console.result(tool=info.tool, version=info.version, builds=[asdict(b) for b in info.builds])
    for build in info.builds:
        usable = f"not here: {build.why_not}" if build.why_not else "runs here"
        console.text(f"build   {build.target} ({usable})")


def _operators(module: Any) -> dict[str, int]:
    from tilewright.graph import Call, all_graphs

    calls = [b.expr for g in all_graphs(module.main) for b in g.body if isinstance(b.expr, Call)]
    return dict(Counter(c.op.name for c in calls).most_common())


COMMAND = Command(
    "inspect",
    "show a model's inputs, operators, memory, graph, loops, LLVM IR or assembly",
    _configure,
    _run,
    (
        "inspect resnet50.twm",
        "inspect resnet50.onnx --graph",
        "inspect resnet50.onnx --loops main",
        "inspect resnet50.onnx --asm conv",
    ),
)
