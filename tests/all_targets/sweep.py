"""Compiles models to object code for many processors; nothing is run. Prints what fails.

    python -m tests.all_targets.sweep                         random networks, until the time is up
    python -m tests.all_targets.sweep --first 1000 --seconds 3600
    python -m tests.all_targets.sweep model.onnx folder       models, each for all targets

This finds what only another processor, or another number of cores, makes the compiler do. It exits
with 1 if any compile failed; a failure of a random network names the seed that makes it again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
from tests.all_targets.graphs import random_model
from tests.machines import CORES, CPUS
from tilewright.support.errors import UserError

PRECISIONS = (None, None, None, "bf16", "int8-dynamic")


class Trial(NamedTuple):
    """One model to be compiled for one target."""

    name: str
    model: Any
    target: str
    options: Mapping[str, Any] = MappingProxyType({})

    def run(self) -> str:
        """What went wrong; empty where nothing did."""
        try:
            tw.compile(self.model, self.target, **self.options)
        except UserError as error:
            # A model that we refuse is refused on every machine, with a reason.
            return f"{type(error).__name__}: {error}"
        except Exception:
            return traceback.format_exc()
        return ""


def random_trials(first: int = 0) -> Iterator[Trial]:
    """Networks by seed, each for a processor and a number of cores of its own."""
    targets = list(itertools.product(CPUS, CORES))
    for seed in itertools.count(first):
        name, model = random_model(seed)
        chance = np.random.default_rng(seed)
        cpu, cores = targets[int(chance.integers(len(targets)))]
        options: dict[str, Any] = {"opt_level": [1, 2, 3, 3, 3][int(chance.integers(5))]}
        precision = PRECISIONS[int(chance.integers(len(PRECISIONS)))]
        if precision is not None:
            options["precision"] = precision
        yield Trial(name, model, f"llvm -mcpu={cpu} -num-cores={cores}", options)


def file_trials(paths: Sequence[str]) -> Iterator[Trial]:
    """Every file for every target; a number of cores is tried for all before the next."""
    files = [f for path in paths for f in _files(Path(path))]
    for cores, cpu, file in itertools.product((2, 16, 1), CPUS, files):
        yield Trial(str(file), str(file), f"llvm -mcpu={cpu} -num-cores={cores}")


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="ONNX files, or folders of them")
    parser.add_argument("--seconds", type=float, default=600, help="begin nothing after this long")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="how many to try at most")
    given = parser.parse_args()
    trials = file_trials(given.models) if given.models else random_trials(given.first)
    end, tried, failed = time.monotonic() + given.seconds, 0, 0
    for trial in itertools.islice(trials, given.count):
        if time.monotonic() > end:
            break
        tried += 1
        started = time.process_time()
        if wrong := trial.run():
            failed += 1
            print(f"FAILED {trial.name} for {trial.target} {trial.options}\n{wrong}", flush=True)
        took = time.process_time() - started
        if took > 30:
            print(f"SLOW {trial.name} for {trial.target} {trial.options}: {took:.0f} s", flush=True)
    print(f"{tried} compiled, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
