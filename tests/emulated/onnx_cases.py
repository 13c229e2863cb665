"""ONNX's own node cases on another architecture, under emulation, beside those that pass here.

    python -m tests.emulated.onnx_cases [--step 5] [--first 0]

Models are compiled here and run by a Python of the other architecture (`foreign_python.py`). Prints
how many of the cases that pass natively are right there, and the others by reason; it exits with 1
where these are fewer than 99 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import tilewright as tw
from tests.conformance.cases import Case, has_same_type, is_close, load_cases
from tests.conformance.known_failures import KNOWN_FAILURES, RANDOM
from tests.conformance.runners import specialised
from tests.emulated.foreign_python import ForeignPython
from tests.emulated.test_models import PROCESSORS

SHARE = 0.99


def fault(case: Case, python: ForeignPython, folder: Path) -> str:
    """Why a case is not right there; empty where it is."""
    target = f"llvm -mcpu={next(iter(PROCESSORS[python.arch]))} -num-cores=1"
    try:
        for inputs, wanted in case.data:
            given = dict(zip([i.name for i in case.model.graph.input], inputs, strict=False))
            module = specialised(case.model, given)
            tw.compile(module, target, threads=1).save(folder / "m.twm")
            got = python.run(folder / "m.twm", [given[p.name] for p in module.main.params])
            if not _is_right(case, got, wanted):
                return "wrong results"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _is_right(case: Case, got: list[object], wanted: list[object]) -> bool:
    if f"node/{case.name}" in RANDOM:
        pairs = zip(got, wanted, strict=True)
        return all(has_same_type(np.asarray(a), np.asarray(b)) for a, b in pairs)
    return is_close(got, wanted, case.rtol, case.atol)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--step", type=int, default=1, help="take every so manieth case")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    native = [c for c in load_cases("node") if f"node/{c.name}" not in KNOWN_FAILURES]
    cases, failed, python = native[given.first :: given.step], 0, ForeignPython()
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            if why := fault(case, python, Path(folder)):
                failed += 1
                print(f"{case.name}: {' '.join(why.split())[:300]}", flush=True)
            if number % 50 == 49:
                print(f"{number + 1 - failed} of {number + 1}", flush=True)
    python.close()
    right = len(cases) - failed
    print(f"{right} of {len(cases)} that pass here are right on {python.arch}")
    return 0 if right >= SHARE * len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
