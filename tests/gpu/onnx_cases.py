"""ONNX's own cases compiled for a GPU, or for the executor that stands for one.

    python -m tests.gpu.onnx_cases [--target cuda] [--step 8] [--jobs 4] [--seconds 60]

Prints how many are right, and the others by reason.
"""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from tests.conformance.cases import is_close, load_cases


def outcome(target: str, seconds: int, step: int, number: int) -> tuple[str, str]:
    """The name of a case, and why it is not right; empty where it is."""
    warnings.simplefilter("ignore")
    case = load_cases("node")[::step][number]
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(seconds)
    try:
        return case.name, _fault(case, target)
    except Exception as error:
        return case.name, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def _fault(case: Any, target: str) -> str:
    import tilewright as tw

    model = tw.compile(case.model, target=target)
    for inputs, wanted in case.data:
        if not is_close(model.run(list(inputs)), list(wanted), case.rtol, case.atol):
            return "wrong"
    return ""


def _stop(*_: object) -> None:
    raise TimeoutError("too slow")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    count = len(load_cases("node")[:: given.step])
    work = partial(outcome, given.target, given.seconds, given.step)
    with ProcessPoolExecutor(given.jobs) as pool:
        found = list(pool.map(work, range(count), chunksize=4))
    failed = [(name, fault) for name, fault in found if fault]
    for name, fault in failed:
        print(f"{name}: {' '.join(fault.split())[:300]}")
    reasons = Counter(" ".join(fault.split())[:60] for _, fault in failed)
    for reason, times in reasons.most_common(25):
        print(f"{times:5}  {reason}")
    print(f"{count - len(failed)} of {count} are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
