"""Whether schedules that the rules make can be saved and replayed: the same loops again.

    python benchmarks/replays.py [MODEL.onnx …]

Every kernel of the networks of `small_networks.py`, of `kernels.py` and of the models named is
scheduled for four processors; the trace goes through JSON and is replayed on the plain function.
What differs is listed, and makes the program end with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from digests import TARGETS
from small_networks import NETWORKS

import tilewright as tw
from tilewright.compile import graph_passes
from tilewright.frontends import read_model
from tilewright.graph import KernelTable, Module, PassContext, kernel_bindings, run_passes
from tilewright.ir import function_text
from tilewright.schedule import RULES, RULES_BY_ADDRESS, Recorded, Rules, Trace


def kernels_of(module: Module, target: tw.Target) -> list[tw.Function]:
    """The loop functions that a model is made of."""
    with PassContext(opt_level=3):
        fused = run_passes(module, graph_passes(target))
    table = KernelTable()
    for binding in kernel_bindings(fused.main):
        table(binding)
    return list(table.functions.values())


def replays(function: tw.Function, target: tw.Target, rules: Rules) -> bool:
    """Whether the saved trace of a schedule makes the same loops."""
    made = rules.schedule(function, target)
    saved = Trace.from_json(json.dumps(made.trace.to_json()))
    again = Recorded(saved).schedule(function, target)
    return function_text(again.function) == function_text(made.function)


def programs(
    files: Sequence[Path], target: tw.Target
) -> Iterator[tuple[str, list[tw.Function], Rules]]:
    """Names of programs, with their kernels and the rules that schedule them."""
    from kernels import cases

    yield "kernels", [case.function for case in cases()], RULES
    for name, make in NETWORKS.items():
        yield f"network {name}", kernels_of(make(), target), RULES_BY_ADDRESS
    for file in files:
        yield f"model {file.name}", kernels_of(read_model(str(file)), target), RULES_BY_ADDRESS


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, nargs="*")
    options = parser.parse_args()
    count, failed = 0, list[str]()
    for cpu, text in TARGETS.items():
        target = tw.Target.of(text)
        for name, functions, rules in programs(options.models, target):
            print(f"{name}, {cpu}: {len(functions)} kernels", file=sys.stderr, flush=True)
            count += len(functions)
            for function in functions:
                if not replays(function, target, rules):
                    failed.append(function.name)
                    print(f"{name}, {cpu}: {function.name} does not replay", flush=True)
    print(f"{len(failed)} of {count} schedules do not replay")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
