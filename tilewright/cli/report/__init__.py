"""`tilewright report`: all that is known of a compiled model on one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.command import Command, Exit
from tilewright.cli.compile import require_writable
from tilewright.cli.loading import native, open_model
from tilewright.cli.options import add_compile_options, add_inputs, add_model, add_threads
from tilewright.cli.profile import measured

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.html", help="default: MODEL's name"
    )
    parser.add_argument(
        "--no-profile", action="store_true", help="run nothing: no timeline, no roofline"
    )
    add_inputs(parser)
    add_threads(parser)
    add_compile_options(parser)


def _run(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.cli.report.collect import collect
    from tilewright.cli.report.timeline import timeline
    from tilewright.cli.report.write import page
    from tilewright.support.files import replacing

    output: Path = args.output or args.model.with_suffix(".html")
    require_writable(output)
    model = native(open_model(args, console), "levels")
    profile = None if args.no_profile else timeline(*measured(model, args, console))
    with console.counting("kernels", len(model.kernels)) as advance:
        report = collect(model, args.model.stem, profile, advance)
    text = page(report).encode(errors="replace")
    with replacing(output) as file:
        file.write(text)
    console.result(output=str(output), bytes=len(text), kernels=len(report["kernels"]))
    console.text(f"{output}: {len(text) / 1e6:.1f} MB, {len(report['kernels'])} kernels")
    return Exit.DONE


COMMAND = Command(
    "report",
    "write a page with graph, kernels, memory, timeline and roofline",
    _configure,
    _run,
    ("report resnet50.twm -o report.html", "report resnet50.onnx --no-profile"),
)
