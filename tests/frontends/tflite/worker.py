"""Reads, compiles and runs damaged models in a process of its own, which may die of them.

`python -m tests.frontends.tflite.worker KIND FIRST COUNT EVERY` answers each mutation with a line
of JSON: {"outcome": "ran" | "refused" | "fault", "detail": …}. Every so many are compiled and run;
the others are only converted.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import warnings
from typing import Any, Final

import numpy as np

import tilewright as tw
from tests.frontends.tflite.damage import SEEDS, mutated
from tilewright.frontends.tflite import from_tflite
from tilewright.runtime import TensorSpec
from tilewright.support.errors import UserError

#: Processor seconds for one model, and bytes of address space for all of the process.
SECONDS: Final = 10
BYTES: Final = 2 << 30
_MANY: Final = 1 << 20


def main(kind: str, first: int, count: int, every: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    seed = SEEDS[kind]()
    for number in range(first, first + count):
        data = mutated(seed, number)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome, detail = _outcome(data, number % every == 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"number": number, "outcome": outcome, "detail": detail}), flush=True)


def _outcome(data: bytes, runs: bool) -> tuple[str, str]:
    try:
        if data[4:8] != b"TFL3" or not runs:
            from_tflite(data)
            return "ran", "only converted"
        model = tw.compile(data, threads=1, opt_level=1)
        inputs = _inputs(model.inputs)
        if inputs is not None:
            model.run(inputs)
        return "ran", ""
    except UserError as error:
        return "refused", str(error)[:200]
    except BaseException as error:
        return "fault", f"{type(error).__name__}: {error}"[:2000]


def _inputs(specs: Any) -> list[Any] | None:
    rng = np.random.default_rng(0)
    found: list[Any] = []
    for spec in specs:
        if not isinstance(spec, TensorSpec):
            return None
        shape = [d if isinstance(d, int) else 2 for d in spec.shape]
        if np.prod(shape, dtype=float) > _MANY or spec.dtype.name == "string":
            return None
        found.append(rng.integers(0, 3, shape).astype(spec.numpy))
    return found


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
