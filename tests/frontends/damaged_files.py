"""Damaged files for front ends that read a description and weights: all follow from a seed.

`outcome` says what came of one: "ran", "refused", or a fault. As a program it takes a thousand of
each seed through the whole compiler, with limits: `python -m tests.frontends.damaged_files darknet
0 1000`.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np

from tilewright.frontends import UnspecialisedError, read_model
from tilewright.graph import Module
from tilewright.support.errors import UserError

#: A description, its weights, and the shapes of inputs that it does not tell.
Seed = tuple[bytes, bytes, dict[str, Any]]

_NUMBERS: Final = (
    "0 1 -1 2 3 7 64 1000 65536 2147483647 -2147483648 9223372036854775807 1e30 nan".split()
)
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?")
_WORD: Final = re.compile(rb"[A-Za-z_]\w*")


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes with one thing wrong: cut, flipped, overwritten, removed or repeated."""
    b = bytearray(data)
    at = rng.randrange(len(b))
    kind = rng.randrange(5)
    if kind == 0:
        del b[at:]
    elif kind == 1:
        b[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        for _ in range(rng.randrange(1, 6)):
            b[rng.randrange(len(b))] = rng.randrange(256)
    elif kind == 3:
        del b[at : at + rng.randrange(1, 20)]
    else:
        start = rng.randrange(len(b))
        b[at:at] = b[start : start + rng.randrange(1, 60)]
    return bytes(b)


def bent(text: bytes, rng: random.Random) -> bytes:
    """A text that still reads, with a number, a word or a line changed."""
    kind = rng.randrange(4)
    if kind == 0:
        lines = text.split(b"\n")
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[at : at + rng.randrange(2)] = [lines[other]] if rng.random() < 0.5 else []
        return b"\n".join(lines)
    pattern = _WORD if kind == 1 else _NUMBER
    found = list(pattern.finditer(text))
    if not found:
        return damaged(text, rng)
    match = rng.choice(found)
    new = rng.choice(found)[0] if kind == 1 else rng.choice(_NUMBERS).encode()
    return text[: match.start()] + new + text[match.end() :]


def mutated(seed_file: Seed, number: int) -> Seed:
    """A damaged model made of a sound one."""
    rng = random.Random(number)
    text, weights, shapes = seed_file
    kind = rng.random()
    if kind < 0.15:
        return damaged(text, rng), weights, shapes
    if kind < 0.35:
        return text, damaged(weights, rng), shapes
    for _ in range(rng.choice([1, 1, 2, 3])):
        text = bent(text, rng)
    return text, weights, shapes


def outcome(
    model: Seed, whole: Callable[[Module], None] | None = None, reader: Any = None
) -> tuple[str, str]:
    """What came of a model: "ran", "refused", or "fault" with the error."""
    text, weights, shapes = model
    try:
        if reader is None:
            graph = read_model(text, shapes, params=weights)
        else:
            graph = reader(text, weights, shapes)
        if whole is not None:
            whole(graph)
        return "ran", ""
    except UnspecialisedError as error:
        return "refused", str(error)
    except UserError as error:
        return "refused", str(error)
    except BaseException as error:
        return "fault", f"{type(error).__name__}: {error}"


def compile_and_run(graph: Module) -> None:
    """The whole compiler, and one run where inputs are small."""
    import tilewright as tw

    model = tw.compile(graph, threads=1, opt_level=1)
    specs: Any = model.inputs
    shapes = [[d if isinstance(d, int) else 2 for d in spec.shape] for spec in specs]
    if all(np.prod(s, dtype=float) <= 1 << 20 for s in shapes):
        rng = np.random.default_rng(0)
        pairs = zip(shapes, specs, strict=True)
        model.run([rng.random(s).astype(i.numpy) for s, i in pairs])


def main(framework: str, first: int, end: int) -> None:
    seeds = import_module(f"tests.frontends.{framework}.seeds").SEEDS
    counts: Counter[str] = Counter()
    for number in range(first, end):
        name = sorted(seeds)[number % len(seeds)]
        what, detail = _apart(mutated(seeds[name], number))
        counts[what] += 1
        if what == "fault":
            print(name, number, detail[:400], flush=True)
    print(framework, dict(counts), flush=True)


def _answer(model: Seed) -> bytes:
    what, detail = outcome(model, compile_and_run)
    return json.dumps((what, detail[:1000])).encode()


def _apart(model: Seed) -> tuple[str, str]:
    """The outcome of a model in a process of its own, with 10 seconds and 2 GB."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        signal.setitimer(signal.ITIMER_PROF, 10)
        os.write(writing, _answer(model))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return tuple(json.loads(answer)) if answer else ("fault", f"the process ended: {status}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
