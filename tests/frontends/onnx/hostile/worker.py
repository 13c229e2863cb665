"""Compiles and runs damaged models, one a line of input; what kills this process kills no test.

`python worker.py FOLDER` reads lines such as `network 17` or `attack 3` and answers each with one
line of JSON: {"outcome": "ran" | "refused" | "fault", "detail": …}. A model that takes too much
processor time or memory ends the process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np

import tilewright as tw
from tests.frontends.onnx.hostile.attacks import OUTSIDE, SECRET, attacks
from tests.frontends.onnx.hostile.damage import mutated
from tests.frontends.onnx.hostile.seeds import SEEDS
from tilewright.runtime import RunnableModel, TensorSpec
from tilewright.support.errors import UserError

#: Processor seconds for one model, and bytes of address space for all of the process.
SECONDS: Final = 30
BYTES: Final = 3 << 30
#: Inputs with more elements are not made.
_MANY: Final = 1 << 20


def main(folder: Path) -> None:
    outside = folder.parent / OUTSIDE
    outside.mkdir(exist_ok=True)
    (outside / SECRET).write_bytes(bytes(range(64)))
    folder.mkdir(exist_ok=True)
    made = [model for _, model in attacks(folder)]
    touched = _watch(outside)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    print(json.dumps({"attacks": len(made)}), flush=True)
    for line in sys.stdin:
        kind, number = line.split()
        path = folder / "model.onnx"
        data = made[int(number)].SerializeToString() if kind == "attack" else None
        path.write_bytes(mutated(SEEDS[kind](), int(number)) if data is None else data)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome, detail = _outcome(path, int(number) % 4)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if touched:
            outcome, detail = "fault", f"read {touched.pop()}"
        print(json.dumps({"outcome": outcome, "detail": detail}), flush=True)


def _watch(outside: Path) -> list[str]:
    """Files outside of the model's folder that were opened, filled as it happens."""
    touched: list[str] = []

    def see(event: str, args: Any) -> None:
        if event == "open" and isinstance(args[0], str):
            real = os.path.realpath(args[0])
            if real.startswith((str(outside), "/dev/zero", "/proc/self/mem", "/etc/passwd")):
                touched.append(real)

    sys.addaudithook(see)
    return touched


def _outcome(path: Path, level: int) -> tuple[str, str]:
    try:
        model = tw.compile(path, threads=1, opt_level=level)
        inputs = _inputs(model)
        if inputs is not None:
            return _judged(model, model.run(inputs))
        return "ran", "only compiled"
    except UserError as error:
        return "refused", str(error)[:200]
    except BaseException as error:
        return "fault", f"{type(error).__name__}: {error}"[:2000]


def _inputs(model: RunnableModel) -> list[Any] | None:
    rng = np.random.default_rng(0)
    found: list[Any] = []
    for spec in model.inputs:
        if not isinstance(spec, TensorSpec):
            return None
        shape = [d if isinstance(d, int) else 2 for d in spec.shape]
        if np.prod(shape, dtype=float) > _MANY:
            return None
        found.append(_array(rng, spec, shape))
    return found


def _array(rng: Any, spec: TensorSpec, shape: list[int]) -> Any:
    if spec.dtype.name == "string":
        return np.full(shape, "a", object)
    return rng.integers(0, 3, shape).astype(spec.numpy)


def _judged(model: RunnableModel, results: list[Any]) -> tuple[str, str]:
    """Results must be what the model says that they are."""
    for spec, result in zip(model.outputs, results, strict=True):
        if isinstance(spec, TensorSpec) and spec.dtype.name != "string":
            array = np.asarray(result)
            if array.dtype != spec.numpy or array.ndim != len(spec.shape):
                return "fault", f"{spec} came as {array.dtype}{array.shape}"
    return "ran", ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
