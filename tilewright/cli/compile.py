"""`tilewright compile`: a model becomes an artifact."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.command import Command, Exit
from tilewright.cli.loading import compiled, require_file
from tilewright.cli.options import ARTIFACT, add_compile_options, add_model
from tilewright.support.errors import UserError, nearest

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser, artifact=False)
    parser.add_argument(
        "-o", "--output", type=Path, metavar=f"FILE{ARTIFACT}", help="default: MODEL's name"
    )
    parser.add_argument(
        "--sign-key", type=Path, metavar="KEY.pem", help="sign the artifact by this private key"
    )
    add_compile_options(parser, several=True)
    looking = parser.add_argument_group("looking")
    looking.add_argument(
        "--print-ir-after",
        action="append",
        default=[],
        metavar="PASS",
        help="print the graph after a pass; 'all' for every one",
    )
    looking.add_argument(
        "--dump", type=Path, metavar="DIR", help="write the graph after every pass to files here"
    )


def _run(args: argparse.Namespace, console: Console) -> Exit:
    import tilewright as tw
    from tilewright.graph import PassContext

    output = args.output or args.model.with_suffix(ARTIFACT)
    require_writable(output)
    _require_passes(args.print_ir_after)
    if args.sign_key:
        require_file(args.sign_key)
    start = time.perf_counter()
    with PassContext(instruments=_instruments(args)):
        models = [compiled(args, console, target) for target in args.target or ["llvm"]]
    spent = time.perf_counter() - start
    tw.save(models, output, key=args.sign_key)
    model = models[0]
    size = output.stat().st_size
    console.result(output=str(output), bytes=size, seconds=spent, inputs=_specs(model.inputs))
    console.result(outputs=_specs(model.outputs), precision=model.precision)
    console.result(denormals=model.denormals)
    console.text(f"{output}: {size / 1e6:.1f} MB, compiled in {spent:.1f} s")
    if model.precision != "float32":
        console.text(f"precision: {model.precision}")
    return Exit.DONE


def require_writable(path: Path) -> None:
    """Find out before the work, not after it, that a file cannot be written."""
    if path.is_dir():
        raise IsADirectoryError(21, "is a directory, not a file", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "no such directory", str(path.parent))
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(13, "cannot be written to", str(path.parent))


def _require_passes(names: list[str]) -> None:
    from tilewright.compile import graph_passes
    from tilewright.target import Target

    known = {"all", *(step.name for step in graph_passes(Target.of("llvm")))}
    for name in names:
        if name not in known:
            raise UserError(f"there is no pass {name}", remedy=nearest(name, known))


def _instruments(args: argparse.Namespace) -> list[Any]:
    from tilewright.graph import PassPrinter

    found: list[Any] = []
    if args.print_ir_after:
        found.append(PassPrinter(None if "all" in args.print_ir_after else args.print_ir_after))
    if args.dump:
        args.dump.mkdir(parents=True, exist_ok=True)
        found.append(_Dump(args.dump))
    return found


class _Dump:
    """Writes the graph after every pass, numbered in order."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._count = directory, 0

    def before(self, name: str, module: Any) -> None:
        if not self._count:
            self._write("given", module)

    def after(self, name: str, module: Any) -> None:
        self._write(name, module)

    def _write(self, name: str, module: Any) -> None:
        path = self._directory / f"{self._count:02}_{name}.txt"
        path.write_text(f"{module}\n", encoding="utf-8")
        self._count += 1


def _specs(specs: Any) -> list[str]:
    return [str(s) for s in specs]


COMMAND = Command(
    "compile",
    "compile a model into an artifact",
    _configure,
    _run,
    (
        "compile resnet50.onnx -o resnet50.twm",
        "compile bert.onnx --shapes input_ids=1,128 --opt-level 3",
        "compile model.onnx --target 'llvm -mcpu=znver4' --target 'llvm -mcpu=neoverse-n1'",
        "compile bert.onnx --precision int8-dynamic",
        "compile model.onnx --sign-key release.pem",
        "compile model.onnx --print-ir-after fuse",
    ),
)
