"""Whole models without tuning, beside the runtimes that people use, in one run.

    python benchmarks/models.py [--models A,B] [--threads 1,2] [--batch 1,8] [--runtimes A,B]
                                [--rounds N] [--seconds S] [--picture FILE.svg] [--json FILE]

Every runtime has a process of its own; in each round all of them run, one after the other, while
the others sleep. Of a round only the least time of each counts: what else runs on the machine makes
times longer, never shorter. The time of a runtime is the median of these over the rounds. `ratio`
is the time of a peer over ours in the same round, of which again the median over the rounds, for
the fastest peer: above 1 we are faster; `least` is the same by the least times of all rounds.

Answers are compared: `error` is the largest difference between ours and those of any peer. Runtimes
that are not installed, or do not take a model, are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from whole_models.picture import ratio_picture
from whole_models.recipes import RECIPES, model_path

PARTS = Path(__file__).parent / "whole_models"

OURS = "tilewright"
#: The package that each needs.
PEERS = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "torch.compile": "torch",
    "tvm": "apache-tvm",
}
#: Those that are run with larger batches as well.
BATCHED = ["resnet50", "mobilenetv2_100", "bert_base"]
#: Of the range of the answers.
TOLERANCE = 1e-3


def is_ours(runtime: str) -> bool:
    """Whether it is Tilewright, by itself or inside of another."""
    return runtime.endswith(OURS)


@dataclass
class Runner:
    """A runtime's process and what it has told."""

    runtime: str
    process: subprocess.Popen[str]
    answers: Path
    load: float = math.nan
    #: The least time of each round.
    times: list[float] = field(default_factory=list)
    resident: int = 0

    @staticmethod
    def start(runtime: str, model: Path, threads: int, folder: Path) -> Runner:
        answers = folder / f"{runtime}.npz"
        command = [sys.executable, "-P", str(PARTS / "runner.py")]
        process = subprocess.Popen(
            [*command, runtime, str(model), str(threads), str(answers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return Runner(runtime, process, answers)

    def wait_loaded(self) -> bool:
        heard = self._hear()
        if heard is not None:
            self.load = heard["load"]
        return heard is not None

    def run(self, seconds: float) -> None:
        assert self.process.stdin is not None
        print(seconds, file=self.process.stdin, flush=True)
        heard = self._hear()
        if heard is not None:
            self.times.append(min(heard["times"]))
            self.resident = heard["resident"]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def outputs(self) -> list[Any]:
        with np.load(self.answers) as saved:
            return [saved[name] for name in saved.files]

    def _hear(self) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None


@dataclass
class Row:
    """What one model took in each runtime."""

    model: str
    threads: int
    batch: int
    runners: dict[str, Runner]
    error: float

    def median(self, runtime: str) -> float:
        return statistics.median(self.runners[runtime].times)

    @property
    def ratio(self) -> float:
        """How many times as long as ours the fastest peer takes."""
        return min(self.ratios().values(), default=math.nan)

    @property
    def ratio_of_least(self) -> float:
        peers = [min(r.times) for r in self.peers().values()]
        return min(peers) / min(self._ours) if peers and self._ours else math.nan

    def ratios(self) -> dict[str, float]:
        """How many times as long as ours each peer takes: the median over the rounds."""
        rounds = {n: _quotients(r.times, self._ours) for n, r in self.peers().items()}
        return {n: statistics.median(found) for n, found in rounds.items() if found}

    def peers(self) -> dict[str, Runner]:
        return {n: r for n, r in self.runners.items() if not is_ours(n) and r.times}

    @property
    def _ours(self) -> list[float]:
        return next((r.times for n, r in self.runners.items() if is_ours(n)), [])


def _quotients(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    # One that ended before its time has fewer rounds, the first ones.
    return [a / b for a, b in zip(theirs, ours, strict=False)]


def measure(
    model: Path, threads: int, batch: int, runtimes: Sequence[str], rounds: int, seconds: float
) -> Row:
    """One model in all runtimes; ours is the first of them."""
    with tempfile.TemporaryDirectory() as folder:
        runners: dict[str, Runner] = {}
        try:
            for runtime in runtimes:
                runner = Runner.start(runtime, model, threads, Path(folder))
                runners[runtime] = runner
                if not runner.wait_loaded():
                    runner.stop()
                    del runners[runtime]
            for _ in range(rounds):
                for runner in runners.values():
                    runner.run(seconds)
            return Row(model.stem, threads, batch, runners, _error(list(runners.values())))
        finally:
            for runner in runners.values():
                runner.stop()


def _error(runners: Sequence[Runner]) -> float:
    """The largest difference between our answers and those of any peer, of their range."""
    ours = next((r.outputs() for r in runners if is_ours(r.runtime)), None)
    if ours is None:
        return math.nan
    peers = [r.outputs() for r in runners if not is_ours(r.runtime)]
    return max((_difference(ours, theirs) for theirs in peers), default=math.nan)


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    # torch's networks give the first output alone.
    pairs = [(a.astype(float), b.astype(float)) for a, b in zip(ours, theirs, strict=False)]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


# ---- printing -----------------------------------------------------------------------------------


def heading(runtimes: Sequence[str]) -> str:
    columns = "".join(f"{r:>18}" for r in runtimes)
    after = f"{'ratio':>7}{'least':>7}{'error':>9}{'MB':>6}{'MB ort':>7}"
    return f"{'model':<30}{'threads':>8}{'batch':>6}{columns}{after}"


def line(row: Row, runtimes: Sequence[str]) -> str:
    def milliseconds(runtime: str) -> str:
        has = runtime in row.runners and row.runners[runtime].times
        return f"{row.median(runtime) * 1e3:>18.2f}" if has else f"{'–':>18}"

    def megabytes(runtime: str) -> str:
        return f"{row.runners[runtime].resident / 1e6:.0f}" if runtime in row.runners else "–"

    columns = "".join(map(milliseconds, runtimes))
    wrong = " WRONG" if row.error > TOLERANCE else ""
    return (
        f"{row.model:<30}{row.threads:>8}{row.batch:>6}{columns}"
        f"{row.ratio:>7.2f}{row.ratio_of_least:>7.2f}{row.error:>9.0e}"
        f"{megabytes(OURS):>6}{megabytes('onnxruntime'):>7}{wrong}"
    )


def summary(rows: Sequence[Row]) -> str:
    ratios = [r.ratio for r in rows if r.ratio > 0]
    if not ratios:
        return "no ratios"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    below = [f"{r.model} {r.ratio:.2f}" for r in rows if r.ratio < 1]
    return f"geometric mean {mean:.2f} over {len(ratios)}; below 1: {', '.join(below) or 'none'}"


def as_json(row: Row) -> dict[str, Any]:
    ratios = row.ratios()
    return {
        "model": row.model,
        "threads": row.threads,
        "batch": row.batch,
        "error": row.error,
        "runtimes": {
            name: {
                "median": statistics.median(r.times),
                "ratio": ratios.get(name, 1.0),
                "least": min(r.times),
                "load": r.load,
                "resident": r.resident,
            }
            for name, r in row.runners.items()
            if r.times
        },
    }


# ---- the run ------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(RECIPES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--runtimes", default=",".join([OURS, *PEERS]))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--picture", type=Path, default=Path("build/models.svg"))
    parser.add_argument("--json", type=Path, default=Path("build/models.json"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    runtimes = installed(options.runtimes.split(","))
    print(heading(runtimes), flush=True)
    rows: list[Row] = []
    for name in options.models.split(","):
        for batch in map(int, options.batch.split(",")):
            if batch != 1 and name not in BATCHED:
                continue
            if not make(name, batch):
                continue
            for threads in map(int, options.threads.split(",")):
                path = model_path(name, batch)
                row = measure(path, threads, batch, runtimes, options.rounds, options.seconds)
                rows.append(row)
                print(line(row, runtimes), flush=True)
    print(summary(rows))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([as_json(r) for r in rows], indent=1))
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(ratio_picture([as_json(r) for r in rows]))
    print(f"{options.picture}, {options.json}")


def installed(runtimes: Sequence[str], packages: Mapping[str, str] = PEERS) -> list[str]:
    """Those that are here; of the others it is said how to get them."""
    here: list[str] = []
    for name in runtimes:
        package = packages.get(name, name.partition(".")[0])
        module = name.partition(".")[0] if packages is PEERS else package
        if name == OURS or importlib.util.find_spec(module):
            here.append(name)
        else:
            print(f"without {name}: it is not installed (pip install {package})")
    return here


def make(name: str, batch: int) -> bool:
    """Build the model if it is not there, in a process of its own, whose memory is given back."""
    command = [sys.executable, "-P", str(PARTS / "recipes.py"), f"--batch={batch}", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["it cannot be built"]
        print(f"without {name}: {reason[0]}", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
