"""Memory and the first inference of saved models, beside ONNX Runtime.

    python benchmarks/memory.py [MODEL.onnx …] [--threads 2] [--rounds 3]

Without arguments: the models of `benchmarks/models.py`, as far as they have been made. Every figure
is taken in a process of its own that imports NumPy, loads a model and runs it: `tw.load` and `run`
of a saved model, `InferenceSession` and `run` of the ONNX file.

first ms    importing the runtime, loading and one run: the least of all rounds, by the wall
CPU ms      the same in time of the processor, which does not count who else is at work
peak MB     the most memory that the process ever held, NumPy's 26 MB among it
own MB      what a process has for itself while a second one runs the same model
planned     parameters, arena and code as the model tells them; of the arena, what is live at once
weights     parameters by the size of the ONNX file
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

PARTS = Path(__file__).parent / "whole_models"
_MAKE = """
import sys
import numpy as np
import tilewright as tw
from runner import example_inputs
from pathlib import Path
source, made, inputs = sys.argv[1:]
model = tw.compile(source)
model.save(made)
np.savez(inputs, **example_inputs(Path(source)))
"""
_PROBE = """
import json, sys, time
import numpy as np
runtime, path, inputs, threads = sys.argv[1:]
with np.load(inputs) as saved:
    feeds = {name: saved[name] for name in saved.files}

def memory():
    files = [open("/proc/self/status").read(), open("/proc/self/smaps_rollup").read()]
    lines = [x.split() for x in "".join(files).splitlines() if x.endswith(" kB")]
    held = {x[0][:-1]: int(x[1]) * 1024 for x in lines}
    return {"peak": held["VmHWM"], "own": held["Private_Clean"] + held["Private_Dirty"]}

wall, cpu = time.perf_counter(), time.process_time()
if runtime == "tilewright":
    import tilewright as tw
    model = tw.load(path, threads=int(threads))
    run = lambda: model.run(feeds)
else:
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    run = lambda: session.run(None, feeds)
run()
first = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
for _ in range(2):
    run()
print(json.dumps(first | memory()), flush=True)
for _ in sys.stdin:
    print(json.dumps(memory()), flush=True)
"""
OURS, PEER = "tilewright", "onnxruntime"


class Process:
    """A process that has run a model and still holds it."""

    def __init__(self, runtime: str, path: Path, inputs: Path, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROBE, runtime, str(path), str(inputs), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            text=True,
        )
        self.told = self._hear()

    def memory(self) -> dict[str, float]:
        assert self._process.stdin is not None
        print("?", file=self._process.stdin, flush=True)
        return self._hear()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _hear(self) -> dict[str, float]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def _environment() -> dict[str, str]:
    """Modules are compiled once: the first process of a machine pays for it, and no other."""
    path = os.pathsep.join([str(PARTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path}


@contextmanager
def running(
    runtime: str, path: Path, inputs: Path, threads: int, count: int
) -> Generator[list[Process]]:
    processes: list[Process] = []
    try:
        for _ in range(count):
            processes.append(Process(runtime, path, inputs, threads))
        yield processes
    finally:
        for process in processes:
            process.end()


def measured(runtime: str, path: Path, inputs: Path, threads: int, rounds: int) -> dict[str, float]:
    told: list[dict[str, float]] = []
    for _ in range(rounds):
        with running(runtime, path, inputs, threads, 1) as (process,):
            told.append(process.told)
    with running(runtime, path, inputs, threads, 2) as processes:
        own = processes[0].memory()["own"]
    least = {key: min(t[key] for t in told) for key in ("wall", "cpu", "peak")}
    return least | {"own": own}


def planned(saved: Path) -> dict[str, int]:
    """What a saved model says that it needs."""
    from tilewright.lower import arena_plan
    from tilewright.models.artifact import load

    model: Any = load(saved)
    plan = arena_plan(model.ir("main"))
    # Of programs with free dimensions the arena is known when they run.
    return {"arena": plan.size, "live": plan.live, **model.memory}


# ---- the table ----------------------------------------------------------------------------------


def heading() -> str:
    columns = [f"{name:>12}{'ORT':>7}{'ratio':>7}" for name in ("first ms", "CPU ms", "peak MB")]
    rest = f"{'own MB':>9}{'ORT':>7}{'planned: params':>17}{'arena':>8}{'live':>8}{'code':>7}"
    return f"{'model':<30}{''.join(columns)}{rest}{'weights':>9}"


def line(source: Path, figures: dict[str, dict[str, float]], plan: dict[str, int]) -> str:
    ours, peer = figures[OURS], figures[PEER]

    def pair(key: str, unit: float) -> str:
        a, b = ours[key] / unit, peer[key] / unit
        return f"{a:>12.0f}{b:>7.0f}{a / b:>7.2f}"

    columns = pair("wall", 1e-3) + pair("cpu", 1e-3) + pair("peak", 1e6)
    own = f"{ours['own'] / 1e6:>9.0f}{peer['own'] / 1e6:>7.0f}"
    sizes = f"{plan['constants'] / 1e6:>17.1f}{plan['arena'] / 1e6:>8.2f}{plan['live'] / 1e6:>8.2f}"
    growth = plan["constants"] / source.stat().st_size
    return f"{source.stem:<30}{columns}{own}{sizes}{plan['code'] / 1e6:>7.2f}{growth:>9.2f}"


def report(source: Path, threads: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        saved, inputs = Path(folder, "model.twm"), Path(folder, "inputs.npz")
        command = [sys.executable, "-c", _MAKE, str(source), str(saved), str(inputs)]
        subprocess.run(command, check=True, env=_environment())
        paths = {OURS: saved, PEER: source}
        figures = {r: measured(r, p, inputs, threads, rounds) for r, p in paths.items()}
        print(line(source, figures, planned(saved)), flush=True)


def made_models() -> Sequence[Path]:
    from whole_models.recipes import RECIPES, model_path

    return [model_path(name, 1) for name in RECIPES if model_path(name, 1).exists()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"NumPy {np.__version__}; {options.threads} threads")
    print(heading(), flush=True)
    for source in sorted(options.models or made_models(), key=lambda p: p.stat().st_size):
        report(source, options.threads, options.rounds)


if __name__ == "__main__":
    main()
