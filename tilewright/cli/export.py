"""`tilewright export`: a model as a library for C, which needs neither Python nor a runtime.

It also writes the runtime that loads artifacts on devices without Python.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.command import Command, Exit
from tilewright.cli.compile import require_writable
from tilewright.cli.loading import is_artifact, open_model
from tilewright.cli.options import add_compile_options, add_model
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console

_HEADER, _SOURCE, _MICRO, _RUNTIME = "c-header", "c", "micro", "runtime"
_PROGRAM = Path("tilewright-run")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser, optional=True)
    parser.add_argument(
        "--format",
        choices=["so", "dylib", "dll", "a", "lib", "o", _SOURCE, _HEADER, _MICRO, _RUNTIME],
        default="so",
        help="what to write; a header comes with each; so, dylib and dll are shared libraries of"
        " Linux, macOS and Windows, and need a linker (pip install ziglang will do); c is source"
        " for any compiler; micro is a folder for a machine without an operating system;"
        " runtime is the program that runs artifacts where there is no Python, or a library of it"
        " (-o libtilewright.a), and takes no model; default so",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: MODEL's name")
    parser.add_argument("--name", help="what the functions' names begin with; default the file's")
    parser.add_argument(
        "--mbedtls",
        type=Path,
        metavar="FOLDER",
        help="sources of mbedTLS 3.6: the runtime then serves its machine as well",
    )
    add_compile_options(parser)


def _run(args: argparse.Namespace, console: Console) -> Exit:
    if args.format == _RUNTIME:
        return _run_runtime(args, console)
    if args.model is None:
        raise UserError("there is nothing to export", remedy="name a model")
    return _run_micro(args, console) if args.format == _MICRO else _run_library(args, console)


def _run_runtime(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.device_runtime import build_runtime

    if args.model is not None:
        raise UserError(
            f"the runtime is not for {args.model} alone",
            remedy="leave the model out, and save it by `tilewright compile`",
        )
    output: Path = args.output or _PROGRAM
    require_writable(output)
    with console.working("building"):
        written = build_runtime(output, args.target or "llvm", mbedtls=args.mbedtls)
    return _tell(written, console)


def _run_micro(args: argparse.Namespace, console: Console) -> Exit:
    folder: Path = args.output or args.model.with_suffix("")
    model = open_model(args, console)
    with console.working("exporting"):
        made = model.export_micro(folder, name=args.name)
    console.result(
        folder=str(folder),
        flash=made.flash,
        code=made.code,
        constants=made.constants,
        ram=made.ram,
        arena=made.arena,
        needs=list(made.needs),
    )
    console.text(f"{folder}: object file, header and notes for a linker")
    console.text(f"flash {made.flash:,} bytes: code {made.code:,}, constants {made.constants:,}")
    console.text(f"RAM   {made.ram:,} bytes: arena {made.arena:,}; inputs, outputs and stack aside")
    return Exit.DONE


def _run_library(args: argparse.Namespace, console: Console) -> Exit:
    suffix = ".h" if args.format == _HEADER else f".{args.format}"
    output: Path = args.output or args.model.with_suffix(suffix)
    require_writable(output)
    header = output if args.format == _HEADER else output.with_suffix(".h")
    require_writable(header)
    if args.format == _SOURCE and args.target is None and not is_artifact(args.model):
        args.target = "c"
    model = open_model(args, console)
    with console.working("exporting"):
        _write(model, output, header, args)
    return _tell(list(dict.fromkeys([output, header])), console)


def _tell(written: list[Path], console: Console) -> Exit:
    console.result(files={str(p): p.stat().st_size for p in written})
    for path in written:
        console.text(f"{path}: {path.stat().st_size / 1e3:.1f} KB")
    return Exit.DONE


def _write(model: Any, output: Path, header: Path, args: argparse.Namespace) -> None:
    if args.format != _HEADER:
        model.export_library(output, header, name=args.name)
        return
    with tempfile.TemporaryDirectory() as folder:
        model.export_library(Path(folder) / f"{output.stem}.o", header, name=args.name)


COMMAND = Command(
    "export",
    "write a library and a header for C",
    _configure,
    _run,
    (
        "export resnet50.twm --format so",
        "export resnet50.twm --format a -o lib/resnet50.a --name resnet",
        "export resnet50.onnx --format o --target 'llvm -mcpu=znver4'",
        "export resnet50.onnx --format dll --target 'llvm -mtriple=x86_64-pc-windows-gnu'",
        "export resnet50.onnx --format c",
        "export --format runtime --target 'llvm -mtriple=aarch64-linux-musl' -o tilewright-run",
        "export keywords.tflite --format micro --target 'llvm -mcpu=cortex-m4' -o keywords",
    ),
)
