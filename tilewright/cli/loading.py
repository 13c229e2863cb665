"""Models and artifacts, opened as the command line asks."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.options import ARTIFACT
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console
    from tilewright.graph import Module
    from tilewright.models.native import NativeModel
    from tilewright.runtime import RunnableModel


def open_model(args: argparse.Namespace, console: Console) -> RunnableModel:
    """The compiled model: loaded from an artifact, or compiled from a model."""
    require_model(args.model)
    if is_artifact(args.model):
        return _loaded(args)
    if getattr(args, "trusted", None):
        raise UserError(
            f"--trusted has no effect on {args.model}", reason="only artifacts are signed"
        )
    return compiled(args, console, args.target or "llvm")


def is_artifact(path: Path) -> bool:
    return path.suffix == ARTIFACT


def compiled(args: argparse.Namespace, console: Console, target: str) -> RunnableModel:
    """The model, compiled with the options of the command line."""
    import tilewright as tw

    require_model(args.model)
    with console.working(f"compiling {args.model.name}"), _tuned(args):
        return tw.compile(
            str(args.model),
            target,
            shapes=dict(args.shapes),
            threads=getattr(args, "threads", None),
            opt_level=args.opt_level,
            precision=args.precision,
            denormals=args.denormals,
            params=params_of(args),
        )


def _tuned(args: argparse.Namespace) -> AbstractContextManager[object]:
    """A context in which records are applied, where the command line names some."""
    import tilewright as tw

    if not args.records:
        return nullcontext()
    for path in args.records:
        require_file(path)
    return tw.tune.apply_best(args.records)


def params_of(args: argparse.Namespace) -> str | None:
    """The file of weights that the command line names."""
    if args.params is None:
        return None
    require_file(args.params)
    return str(args.params)


def native(model: RunnableModel, wanted: str) -> NativeModel:
    """The model, which must be native as a whole to be looked at."""
    from tilewright.models.native import NativeModel

    if isinstance(model, NativeModel):
        return model
    raise UserError(
        f"the model has no {wanted} to show",
        reason=f"it is a {type(model).__name__}: parts of it are made or run by Python",
        remedy="fix what its structure depends on with --shapes",
    )


def graph_of(model: NativeModel) -> Module:
    """The graph after all passes; that of an artifact has zeros for large constants."""
    from tilewright.graph import parse_module
    from tilewright.models.native import GRAPH_TEXT

    try:
        kept: Module | None = getattr(model, "graph", None)
    except UserError:
        kept = None
    return kept or parse_module(model.texts[GRAPH_TEXT], blank=True)


def require_model(path: Path) -> None:
    """Refuse what is no file, and no folder that a front end reads."""
    from tilewright.frontends import is_model_folder

    if not is_model_folder(path):
        require_file(path)


def require_file(path: Path) -> None:
    """Refuse what is no file, in words rather than by its number."""
    if path.is_dir():
        raise IsADirectoryError(21, "is a directory, not a file", str(path))
    if not path.exists():
        raise FileNotFoundError(2, "no such file", str(path))


def _loaded(args: argparse.Namespace) -> RunnableModel:
    for option in ("target", "shapes", "params", "records", "opt_level", "precision", "denormals"):
        if getattr(args, option, None):
            raise UserError(
                f"--{option.replace('_', '-')} has no effect on {args.model}",
                reason="an artifact is compiled already",
                remedy="pass the model it was made of",
            )
    import tilewright as tw

    threads = getattr(args, "threads", None)
    return tw.load(args.model, threads=threads, trusted=args.trusted)
