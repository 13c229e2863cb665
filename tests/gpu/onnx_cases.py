"""ONNX's own cases compiled for a GPU, or for the executor that stands for one.

    python -m tests.gpu.onnx_cases [--target cuda] [--step 8] [--jobs 4] [--seconds 60]

Prints how many are right, and the others by reason.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conformance.cases import is_close, load_cases


def outcome(case: Any, target: str, seconds: int) -> str:
    """Why a case is not right; empty where it is."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(seconds)
    try:
        return _fault(case, target)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
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


def work(given: argparse.Namespace) -> None:
    """Run every `jobs`-th case from one on, and tell of each before and after."""
    first, begin = map(int, given.worker.split("/"))
    cases = load_cases("node")[:: given.step][first :: given.jobs]
    for number in range(begin, len(cases)):
        case = cases[number]
        print(json.dumps([number, case.name, None]), flush=True)
        fault = outcome(case, given.target, given.seconds)
        print(json.dumps([number, case.name, fault]), flush=True)
        if fault.startswith("CudaError"):
            # A kernel that reached for memory it does not have ends all that the process has there.
            os._exit(1)


def followed(given: argparse.Namespace, first: int) -> dict[str, str]:
    """What a worker found; it is started again behind a case that ended it."""
    found: dict[str, str] = {}
    begin = 0
    while True:
        command = [sys.executable, "-m", "tests.gpu.onnx_cases", "--worker", f"{first}/{begin}"]
        for option in ("target", "step", "jobs", "seconds"):
            command += [f"--{option}", str(getattr(given, option))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        number = None
        for line in done.stdout.splitlines():
            number, name, fault = json.loads(line)
            found[name] = "the process ended" if fault is None else fault
        if done.returncode == 0 or number is None:
            return found
        begin = number + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--worker", default="")
    given = parser.parse_args()
    if given.worker:
        work(given)
        return 0
    with ThreadPoolExecutor(given.jobs) as pool:
        parts = list(pool.map(lambda k: followed(given, k), range(given.jobs)))
    found = {name: fault for part in parts for name, fault in part.items()}
    failed = {name: " ".join(fault.split()) for name, fault in found.items() if fault}
    for name, fault in failed.items():
        print(f"{name}: {fault[:300]}")
    for reason, times in Counter(fault[:60] for fault in failed.values()).most_common(25):
        print(f"{times:5}  {reason}")
    print(f"{len(found) - len(failed)} of {len(found)} are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
