"""`tilewright quantize`: a model in bytes, with the error measured on data that was held out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.command import Command, Exit
from tilewright.cli.compile import require_writable
from tilewright.cli.loading import is_artifact, params_of, require_model
from tilewright.cli.options import add_model, add_reading_options, positive
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console

_METHODS = ("mse", "minmax", "percentile", "entropy", "gptq", "awq")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser, artifact=False)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.onnx", help="default: MODEL's name, .int8.onnx"
    )
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="samples to calibrate with: an .npz file of arrays by input, a folder of .npz or .npy"
        " files, or random; a fourth is held out to measure the error on",
    )
    parser.add_argument(
        "--validation", type=Path, metavar="DATA", help="samples to measure the error on instead"
    )
    parser.add_argument(
        "--budget",
        type=share,
        help="error at the outputs that is let pass, as a number (0.01) or 1%%: layers stay in"
        " float32 as far as that needs; default none",
    )
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page about it")
    parser.add_argument(
        "--method",
        choices=_METHODS,
        default="mse",
        help="how ranges are found; default mse. gptq and awq round weights alone by data",
    )
    parser.add_argument(
        "--symmetric", action="store_true", help="ranges around zero, without zero points"
    )
    parser.add_argument(
        "--keep", action="append", default=[], metavar="LAYER", help="leave this layer in float32"
    )
    parser.add_argument(
        "--weights", choices=("int4", "int8"), help="round weights alone; needs no data"
    )
    parser.add_argument(
        "--group", type=positive, default=32, help="weights that share a scale; default 32"
    )
    add_reading_options(parser)


def share(text: str) -> float:
    """`0.01` or `1%` → 0.01"""
    number, percent = (text[:-1], True) if text.endswith("%") else (text, False)
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no error such as 0.01 or 1%")
    return value


def _run(args: argparse.Namespace, console: Console) -> Exit:
    if is_artifact(args.model):
        raise UserError("quantize needs the model itself", remedy="pass its file")
    require_model(args.model)
    output: Path = args.output or args.model.with_suffix(f".{args.weights or 'int8'}.onnx")
    for path in (output, args.report):
        if path is not None:
            require_writable(path)
    module = _quantized(args, console)
    with console.working("writing"):
        module.save(output)
        if args.report is not None:
            module.save_report(args.report)
    sizes = [args.model.stat().st_size, output.stat().st_size]
    console.result(file=str(output), bytes=sizes[1], bytes_before=sizes[0])
    console.result(**module.report.data())
    console.text(str(module.report))
    console.text(f"{output}: {sizes[1] / 1e6:.1f} MB, before {sizes[0] / 1e6:.1f} MB")
    return Exit.DONE


def _quantized(args: argparse.Namespace, console: Console) -> Any:
    from tilewright.quantize import quantize

    stages: list[str] = []

    def show(stage: str) -> None:
        if stage not in stages:
            stages.append(stage)
            console.remark(stage)

    with console.working(f"quantizing {args.model.name}"):
        return quantize(
            str(args.model),
            args.data,
            budget=args.budget,
            validation=None if args.validation is None else str(args.validation),
            method=args.method,
            symmetric=args.symmetric,
            keep=args.keep,
            weights=args.weights,
            group=args.group,
            shapes=dict(args.shapes),
            params=params_of(args),
            progress=show,
        )


COMMAND = Command(
    "quantize",
    "write a model in bytes, with the error known",
    _configure,
    _run,
    (
        "quantize model.onnx --data calibration.npz --budget 1% -o model.int8.onnx",
        "quantize model.onnx --data samples/ --report quant.html",
        "quantize llm.onnx --weights int4 --group 32",
        "quantize llm.onnx --weights int4 --method gptq --data tokens.npz",
    ),
)
