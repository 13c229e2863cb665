"""`tilewright profile`: where the time of a run goes, and how much of it could be saved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.arrays import inputs_for
from tilewright.cli.command import Command, Exit
from tilewright.cli.compile import require_writable
from tilewright.cli.loading import native, open_model
from tilewright.cli.options import (
    add_compile_options,
    add_inputs,
    add_model,
    add_threads,
    positive,
)

if TYPE_CHECKING:
    from tilewright.cli.console import Console
    from tilewright.insight.roof import Roof
    from tilewright.models.native import NativeModel
    from tilewright.support.profile import KernelTime, Profile


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--runs", type=positive, default=20, help="to measure; default 20")
    parser.add_argument("--top", type=positive, default=20, help="kernels to list; default 20")
    parser.add_argument(
        "--trace", type=Path, metavar="TRACE.json", help="for ui.perfetto.dev or chrome://tracing"
    )
    add_inputs(parser)
    add_threads(parser)
    add_compile_options(parser)


def _run(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.support.timing import format_seconds

    if args.trace:
        require_writable(args.trace)
    model = native(open_model(args, console), "kernels")
    profile, roof = measured(model, args, console)
    if args.trace:
        profile.save_trace(args.trace)
    rows = profile.rows
    console.result(
        seconds=profile.seconds,
        runs=profile.runs,
        kernels=[_facts(r, roof) for r in rows],
        copies=[
            {"name": r.name, "seconds": r.seconds, "bytes": r.bytes} for r in profile.copy_rows
        ],
    )
    floor = sum(roof.floor(r.flops, r.bytes) for r in rows)
    console.table(
        ("kernel", "calls", "time", "share", "GFLOP/s", "GB/s", "floor", "of it", "nodes"),
        [_cells(r, roof) for r in rows[: args.top]],
    )
    if len(rows) > args.top:
        console.text(f"… and {len(rows) - args.top} more: --top {len(rows)}")
    for row in profile.copy_rows:
        console.text(f"{row.name}: {', '.join(row.origins)} in {format_seconds(row.seconds)}")
    total = format_seconds(profile.seconds)
    console.text(
        f"\n{total} a run in {len(rows)} kernels; their floors add up to {format_seconds(floor)}"
    )
    return Exit.DONE


def measured(
    model: NativeModel, args: argparse.Namespace, console: Console
) -> tuple[Profile, Roof]:
    """A profile on the inputs of the command line, and what the machine can do at most."""
    from tilewright.insight.roof import roof_of

    inputs = inputs_for(model.inputs, args, console)
    with console.working("measuring"):
        profile = model.profile(inputs, runs=getattr(args, "runs", 10))
        return profile, roof_of(model.target, model.precision, args.threads)


def _floor(row: KernelTime, roof: Roof) -> float:
    return row.calls * roof.floor(row.flops / row.calls, row.bytes / row.calls)


def _facts(row: KernelTime, roof: Roof) -> dict[str, Any]:
    return {
        "name": row.name,
        "calls": row.calls,
        "seconds": row.seconds,
        "share": row.share,
        "flops": row.flops,
        "bytes": row.bytes,
        "floor": _floor(row, roof),
        "nodes": list(row.origins),
    }


def _cells(row: KernelTime, roof: Roof) -> tuple[str, ...]:
    from tilewright.support.timing import format_seconds

    floor = _floor(row, roof)
    nodes = ", ".join(row.origins)
    return (
        row.name,
        f"{row.calls:g}",
        format_seconds(row.seconds),
        f"{row.share:.1%}",
        f"{row.flops_per_second / 1e9:.1f}",
        f"{row.bytes_per_second / 1e9:.1f}",
        format_seconds(floor),
        f"{min(1.0, floor / row.seconds) if row.seconds else 0:.0%}",
        nodes if len(nodes) <= 60 else nodes[:59] + "…",
    )


COMMAND = Command(
    "profile",
    "show the time of every kernel beside the least that the machine allows",
    _configure,
    _run,
    ("profile resnet50.twm", "profile bert.onnx --threads 1 --trace trace.json"),
)
