"""Runs models and random graphs on other architectures, under emulation.

    python -m tests.emulated.sweep                              100 random graphs on each processor
    python -m tests.emulated.sweep --graphs 0 model.onnx folder models, each on each processor
    python -m tests.emulated.sweep --processors cortex-a7 --first 1000 --graphs 10

Models are compiled here, and run by the runtime without Python, built for each architecture.
Answers to models are compared with ONNX Runtime's, those to random graphs, whose sizes are free,
with NumPy's. It exits with 1 if an answer is wrong or nothing could be run; the name of a random
graph has the seed that makes it again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

import tilewright as tw
from tests.all_targets.graphs import random_model
from tests.device_runtime.built import Runtime
from tests.emulated.emulator import needed_emulator
from tests.emulated.test_models import PROCESSORS
from tilewright.device_runtime import build_runtime
from tilewright.frontends import from_onnx
from tilewright.graph import evaluate

Array = np.ndarray[Any, Any]
#: One of each architecture, with the widest instructions.
DEFAULT = ("neoverse-v1", "cortex-a7", "rv64gcv")
#: What emulators lack of processors.
_WITHOUT = {"neoverse-v1": "-mattr=-lse2"}
#: Differences that are allowed, of the range of the answers.
_GRAPHS, _MODELS = 1e-4, 1e-3
#: Elements of inputs of random graphs.
_LARGEST = 1 << 16
#: Seconds that a model may take under emulation.
_SECONDS = 3600


class Trial(NamedTuple):
    """A model with inputs and the answers to them."""

    name: str
    model: Any
    inputs: Mapping[str, Array]
    wanted: Sequence[Array]
    tolerance: float


# ---- what is run --------------------------------------------------------------------------------


def random_trials(first: int, count: int) -> Iterator[Trial]:
    """So many graphs by seed; those that are large, or illegal with their sizes, are left out."""
    made = filter(None, map(_random_trial, itertools.count(first)))
    return itertools.islice(made, count)


def _random_trial(seed: int) -> Trial | None:
    name, model = random_model(seed)
    inputs = example_inputs(model, np.random.default_rng(seed), 3, 8)
    if max(a.size for a in inputs.values()) > _LARGEST:
        return None
    try:
        graph = from_onnx(model)
        wanted = evaluate(graph, [inputs[p.name] for p in graph.main.params])
    except tw.UserError:
        return None
    return Trial(name, model, inputs, wanted, _GRAPHS)


def file_trials(paths: Sequence[str]) -> Iterator[Trial]:
    for path in [f for p in map(Path, paths) for f in _files(p)]:
        model = onnx.load(str(path))
        inputs = example_inputs(model, np.random.default_rng(0), 1, 2)
        yield Trial(path.stem, str(path), inputs, answers(model, inputs), _MODELS)


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


def example_inputs(
    model: Any, chance: np.random.Generator, least: int, most: int
) -> dict[str, Array]:
    """Arrays for all inputs; free dimensions have sizes below `most`, the same for equal names."""
    sizes: dict[str, int] = {}
    weights = {w.name for w in model.graph.initializer}
    found: dict[str, Array] = {}
    for info in model.graph.input:
        if info.name in weights:
            continue
        tensor = info.type.tensor_type
        shape = [
            d.dim_value or sizes.setdefault(d.dim_param, int(chance.integers(least, most)))
            for d in tensor.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        is_real = np.issubdtype(dtype, np.floating)
        limit = 2 if "mask" in info.name or dtype.kind == "b" else 1000
        values = chance.standard_normal(shape) if is_real else chance.integers(0, limit, shape)
        found[info.name] = values.astype(dtype)
    return found


def answers(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime gives."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [np.asarray(a) for a in session.run(None, dict(inputs))]


# ---- running ------------------------------------------------------------------------------------


def runtime_for(cpu: str, folder: Path) -> Runtime:
    """The runtime without Python for the architecture of a processor, which is emulated."""
    arch = next(arch for arch, known in PROCESSORS.items() if cpu in known)
    emulator = needed_emulator(arch, PROCESSORS[arch][cpu])
    program = folder / arch
    if not program.exists():
        build_runtime(program, compiler=emulator.compiler, environment=emulator.environment)
    return Runtime(program, emulator.runner, _SECONDS)


def fault(trial: Trial, cpu: str, runtime: Runtime, folder: Path) -> str:
    """What is wrong with a model on a processor; empty where nothing is."""
    try:
        model = tw.compile(trial.model, f"llvm -mcpu={cpu} {_WITHOUT.get(cpu, '')} -num-cores=2")
        model.save(folder / "model.twm")
        inputs = [trial.inputs[spec.name] for spec in model.inputs]
        found = runtime.outputs(folder / "model.twm", model, inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    pairs = zip(found, trial.wanted, strict=True)
    worst = max(_difference(got, want) for got, want in pairs)
    return "" if worst <= trial.tolerance else f"it is off by {worst:.1e} of its range"


def _difference(got: Array, want: Array) -> float:
    """The largest difference, of the range of what is wanted."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return np.inf
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    largest = np.abs(b[finite]).max(initial=1e-30)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / largest)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="ONNX files, or folders of them")
    parser.add_argument("--graphs", type=int, default=100, help="random graphs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processors", default=",".join(DEFAULT))
    given = parser.parse_args()
    cpus, tried, failed = given.processors.split(","), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        runtimes = {cpu: runtime_for(cpu, Path(folder)) for cpu in cpus}
        trials = itertools.chain(
            random_trials(given.first, given.graphs), file_trials(given.models)
        )
        for trial, cpu in ((trial, cpu) for trial in trials for cpu in cpus):
            started = time.monotonic()
            wrong = fault(trial, cpu, runtimes[cpu], Path(folder))
            tried, failed = tried + 1, failed + bool(wrong)
            took = time.monotonic() - started
            print(f"{trial.name} {cpu}: {wrong or 'right'} ({took:.0f} s)", flush=True)
    print(f"{tried - failed} of {tried} are right")
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
