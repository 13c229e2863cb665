"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.support.denormals import DENORMALS

#: What an artifact's name ends with.
ARTIFACT = ".twm"

Shapes = dict[str, list[int | str]]


def add_model(
    parser: argparse.ArgumentParser, *, artifact: bool = True, optional: bool = False
) -> None:
    kinds = "a model of any front end (a file, or a SavedModel's folder)"
    what = f"{kinds} or an artifact ({ARTIFACT})" if artifact else kinds
    nargs = "?" if optional else None
    parser.add_argument("model", metavar="MODEL", type=Path, nargs=nargs, help=what)
    if artifact:
        parser.add_argument(
            "--trusted",
            action="append",
            type=Path,
            metavar="KEY.pem",
            help="refuse an artifact unless this public key signed it; may be repeated",
        )


def add_compile_options(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """What `compile` takes, for all commands that compile a model when given one."""
    add_reading_options(parser)
    group = parser.add_argument_group("compiling")
    text = "what to compile for, such as 'llvm -mcpu=znver4'; default this machine"
    if several:
        text += "; may be repeated, for several in one file"
    group.add_argument("--target", action="append" if several else "store", help=text)
    group.add_argument("--opt-level", type=int, choices=range(4), help="0 to 3; default 3")
    group.add_argument(
        "--precision",
        metavar="P",
        help="in what products are computed: float32 (default); bf16, where the target is faster"
        " at it; tf32 and float16, on GPUs; float8, products by constant weights in floats of"
        " eight bits, on GPUs; int8-dynamic, the same in bytes",
    )
    group.add_argument(
        "--records",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.jsonl",
        help="take the schedules that `tune` has found; may be repeated",
    )
    group.add_argument(
        "--denormals",
        choices=DENORMALS,
        help="numbers below the least normal one: flush (default) makes them zeros, which is"
        " faster; keep computes with them",
    )


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """What says how a model file is read."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--shapes",
        action="append",
        default=[],
        type=shape,
        metavar="INPUT=D,D,…",
        help="give an input this shape; numbers, or names of symbolic dimensions",
    )
    group.add_argument(
        "--params",
        type=Path,
        metavar="FILE",
        help="weights in a file of their own (Caffe, Darknet, MXNet); default the one beside MODEL",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=positive, help="how many threads; default all cores")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Where the inputs of a run come from."""
    add_given_inputs(parser)
    parser.add_argument(
        "--fill", choices=["random", "zeros", "ones"], help="what inputs not given are made of"
    )
    parser.add_argument("--seed", type=int, default=0, help="for random inputs; default 0")


def add_given_inputs(parser: argparse.ArgumentParser) -> None:
    """Inputs in a file, and the sizes of those that are made up."""
    parser.add_argument("--inputs", type=Path, metavar="IN.npz", help="inputs by name")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=dimension,
        metavar="NAME=N",
        help="the size of a symbolic dimension of inputs that are made up",
    )


# ---- values -------------------------------------------------------------------------------------


def shape(text: str) -> tuple[str, list[int | str]]:
    """`x=1,3,n` → ("x", [1, 3, "n"])"""
    name, found, dims = text.rpartition("=")
    parts = [d.strip() for d in dims.replace("x", ",").split(",")] if _is_crossed(dims) else None
    parts = parts or [d.strip() for d in dims.split(",")]
    if not found or not name or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form INPUT=D,D,…")
    return name, [int(d) if d.isdecimal() else d for d in parts]


def _is_crossed(dims: str) -> bool:
    """Whether dimensions are written as 1x3x224x224."""
    return all(d.isdecimal() for d in dims.split("x"))


def dimension(text: str) -> tuple[str, int]:
    """`n=4` → ("n", 4)"""
    name, found, size = text.partition("=")
    if not found or not name or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=N")
    return name, int(size)


def positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def listed(item: Callable[[str], object]) -> Callable[[str], list[object]]:
    """A value of the form `1,2,4`."""

    def read(text: str) -> list[object]:
        return [item(part.strip()) for part in text.split(",")]

    return read


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read
