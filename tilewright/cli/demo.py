"""`tilewright demo`: a trained model from PyPI, compiled, asked, and timed beside ONNX Runtime."""

from __future__ import annotations

import argparse
import json
import struct
import time
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.cli.command import Command, Exit
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console

#: The package that brings the model: Google's Magika tells what kind of file some bytes are.
_PACKAGE: Final = "magika"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=3.0, help="to measure; default 3")
    parser.add_argument("files", nargs="*", type=Path, help="files to recognise; default samples")


def _run(args: argparse.Namespace, console: Console) -> Exit:
    import tilewright as tw
    from tilewright.support.timing import format_seconds

    folder = _model_folder()
    config = json.loads((folder / "config.min.json").read_text(encoding="utf-8"))
    path = folder / "model.onnx"
    console.text(f"Magika, a trained model of {path.stat().st_size / 1e6:.1f} MB, on this machine:")
    console.text(f"  {tw.Target.of('llvm')}\n")
    start = time.perf_counter()
    with console.working("compiling"):
        model = tw.compile(str(path))
    built = time.perf_counter() - start
    console.text(f"compiled in {format_seconds(built)}\n")
    samples = {str(f): f.read_bytes() for f in args.files} or _samples()
    good = _recognise(model, config, samples, console, known=not args.files)
    console.result(compile_seconds=built)
    agrees = _race(path, model, _features(next(iter(samples.values())), config), args, console)
    return Exit.DONE if good and agrees else Exit.DIFFERENT


def _model_folder() -> Path:
    spec = find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise UserError(
            "the demo's model is not installed",
            reason=f"it comes in the package {_PACKAGE}",
            remedy="pip install 'tilewright[demo]'",
        )
    found = sorted(Path(folders[0]).glob("models/*/model.onnx"))
    if not found:
        raise UserError(
            f"the package {_PACKAGE} holds no model", remedy="install version 1.0 of it"
        )
    return found[-1].parent


# ---- the question -------------------------------------------------------------------------------


def _features(data: bytes, config: dict[str, Any]) -> Any:
    """What the model takes: the first and last bytes of a file without white space around them."""
    import numpy as np

    first, last, block = config["beg_size"], config["end_size"], config["block_size"]
    tokens = np.full(first + last, config["padding_token"], np.int32)
    head = data[:block].lstrip()[:first]
    tail = data[-block:].rstrip()[-last:]
    tokens[: len(head)] = np.frombuffer(head, np.uint8)
    tokens[first + last - len(tail) :] = np.frombuffer(tail, np.uint8)
    return tokens[None]


def _recognise(
    model: Any, config: dict[str, Any], samples: dict[str, bytes], console: Console, *, known: bool
) -> bool:
    rows: list[tuple[str, str, str]] = []
    for name, data in samples.items():
        scores = model(_features(data, config))[0]
        best = int(scores.argmax())
        rows.append((name, config["target_labels_space"][best], f"{scores[best]:.1%}"))
    console.table(("file", "recognised as", "score"), rows)
    console.result(answers=[dict(zip(("file", "kind", "score"), r, strict=True)) for r in rows])
    good = not known or all(_EXPECTED[name] == kind for name, kind, _ in rows)
    console.text("" if good else "\nNot all samples were recognised.")
    return good


# ---- the race -----------------------------------------------------------------------------------


def _race(path: Path, model: Any, x: Any, args: argparse.Namespace, console: Console) -> bool:
    import numpy as np

    from tilewright.cli.bench import interleaved
    from tilewright.cli.peers import MissingPeerError, onnxruntime
    from tilewright.support.timing import format_seconds

    inputs = {model.inputs[0].name: x}
    runs: dict[str, Any] = {"tilewright": lambda: model.run(inputs)}
    error = 0.0
    try:
        peer = onnxruntime(path)
        error = float(np.abs(peer(inputs)[0] - model.run(inputs)[0]).max())
        runs["onnxruntime"] = lambda: peer(inputs)
    except MissingPeerError as missing:
        console.note(f"without ONNX Runtime: {missing}")
    samples = interleaved(runs, args.seconds)
    rows = [
        (name, *(format_seconds(taken.percentile(p)) for p in (50, 90)))
        for name, taken in samples.items()
    ]
    console.table(("latency, in turn", "p50", "p90"), rows)
    console.result(latency={n: t.median for n, t in samples.items()}, error=error)
    if "onnxruntime" in runs:
        console.text(f"\nlargest difference between the two answers: {error:.1e}")
    return error < 1e-4


# ---- samples ------------------------------------------------------------------------------------


def _samples() -> dict[str, bytes]:
    return {
        "fibonacci.py": _PYTHON.encode(),
        "hello.c": _C.encode(),
        "chart.png": _png(64, 64),
        "orders.sql": _SQL.encode(),
        "Makefile": _MAKE.encode(),
    }


_EXPECTED: Final = {
    "fibonacci.py": "python",
    "hello.c": "c",
    "chart.png": "png",
    "orders.sql": "sql",
    "Makefile": "makefile",
}
_PYTHON: Final = '''\
"""Fibonacci numbers."""

import functools


@functools.cache
def fibonacci(n: int) -> int:
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


if __name__ == "__main__":
    for k in range(20):
        print(k, fibonacci(k))
'''
_C: Final = """\
#include <stdio.h>
#include <stdlib.h>

static int add(int a, int b) { return a + b; }

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    printf("%s: %d\\n", argv[i], add(atoi(argv[i]), 1));
  return 0;
}
"""
_SQL: Final = """\
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, total NUMERIC(10, 2));
INSERT INTO orders (customer, total) VALUES ('Ada', 12.50), ('Grace', 99.00);
SELECT customer, SUM(total) AS spent FROM orders GROUP BY customer ORDER BY spent DESC;
"""
_MAKE: Final = """\
CC ?= cc
CFLAGS += -O2 -Wall
.PHONY: all clean

all: hello

hello: hello.o
\t$(CC) $(CFLAGS) -o $@ $^

%.o: %.c
\t$(CC) $(CFLAGS) -c -o $@ $<

clean:
\trm -f hello *.o
"""


def _png(width: int, height: int) -> bytes:
    """A small picture of colours that run into each other."""
    rows = b"".join(
        b"\0" + bytes(v for x in range(width) for v in (4 * x % 256, 4 * y % 256, 128))
        for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


COMMAND = Command(
    "demo",
    "compile a trained model, ask it, time it beside ONNX Runtime",
    _configure,
    _run,
    ("demo", "demo photo.jpg script.sh"),
)
