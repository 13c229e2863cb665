"""`tilewright run`: arrays in, arrays out."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.arrays import inputs_for, named_tensors, summary, write_arrays
from tilewright.cli.command import Command, Exit
from tilewright.cli.compile import require_writable
from tilewright.cli.loading import open_model
from tilewright.cli.options import (
    add_compile_options,
    add_inputs,
    add_model,
    add_threads,
    positive,
)

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_inputs(parser)
    parser.add_argument("--outputs", type=Path, metavar="OUT.npz", help="write the outputs here")
    parser.add_argument("--repeat", type=positive, default=1, help="run this often; default 1")
    parser.add_argument(
        "--print-top", type=positive, metavar="N", help="print the N largest of each row of outputs"
    )
    add_threads(parser)
    add_compile_options(parser)


def _run(args: argparse.Namespace, console: Console) -> Exit:
    if args.outputs:
        require_writable(args.outputs)
    model = open_model(args, console)
    inputs = inputs_for(model.inputs, args, console)
    outputs, seconds = _repeated(model, inputs, args.repeat)
    named = named_tensors([s.name for s in model.outputs], outputs)
    if args.outputs:
        write_arrays(args.outputs, named)
    console.result(seconds=seconds, outputs={k: _described(v, args) for k, v in named.items()})
    for name, array in named.items():
        console.text(f"{name}: {summary(array)}")
        if args.print_top:
            _print_top(console, array, args.print_top)
    if args.repeat > 1:
        console.text(f"{args.repeat} runs, {seconds / args.repeat * 1e3:.3f} ms each")
    return Exit.DONE


def _repeated(model: Any, inputs: Any, repeat: int) -> tuple[list[Any], float]:
    start = time.perf_counter()
    outputs: list[Any] = []
    for _ in range(repeat):
        outputs = model.run(inputs)
    return outputs, time.perf_counter() - start


def _described(array: Any, args: argparse.Namespace) -> dict[str, Any]:
    import numpy as np

    values = np.asarray(array)
    found: dict[str, Any] = {"dtype": values.dtype.name, "shape": list(values.shape)}
    if args.print_top:
        found["top"] = [row for _, row in _top(values, args.print_top)]
    return found


def _print_top(console: Console, array: Any, count: int) -> None:
    for row, ranked in _top(array, count):
        console.text(f"  row {row}: " + "  ".join(f"{i}: {v:.4g}" for i, v in ranked))


def _top(array: Any, count: int) -> list[tuple[int, list[tuple[int, float]]]]:
    """The largest entries of each of the first rows, with their numbers."""
    import numpy as np

    values = np.asarray(array)
    rows = values.reshape(-1, values.shape[-1] if values.ndim else 1)[:8]
    orders = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    return [
        (k, [(int(i), float(row[i])) for i in order])
        for k, (row, order) in enumerate(zip(rows, orders, strict=True))
    ]


COMMAND = Command(
    "run",
    "run a model or an artifact on arrays",
    _configure,
    _run,
    (
        "run resnet50.twm --inputs image.npz --outputs scores.npz --print-top 5",
        "run bert.onnx --fill random --dim batch=4 --repeat 10",
    ),
)
