"""Records the machine code that a set of programs compiles to, and tells what has changed since.

    python benchmarks/digests.py record FILE [MODEL.onnx …]
    python benchmarks/digests.py compare FILE [MODEL.onnx …]

The programs are the networks of `small_networks.py`, the kernels of `kernels.py`, and the models
named, each compiled for four processors, none of which needs to be this one. A refactoring that
only moves code changes no digest; `compare` lists every kernel whose code differs, by program and
processor, and ends with 1 if there is one. Constants count as well: they are what kernels prepare.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from small_networks import NETWORKS

import tilewright as tw

#: One with wide vectors, one with narrow ones, two of Arm's. Cores are given: code depends on them.
TARGETS = {
    cpu: f"llvm -mcpu={cpu} -num-cores=4"
    for cpu in ("skylake-avx512", "haswell", "neoverse-n1", "apple-m1")
}
#: Networks whose products are computed in bytes, too.
NARROWED = ("bert",)

#: Program -> processor -> kernel -> digest of its object file.
Digests = dict[str, dict[str, dict[str, str]]]


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def model_digests(model: Any, target: str, **options: Any) -> dict[str, str]:
    """The digests of a model's kernels, of what calls them, and of their constants."""
    build = tw.compile(model, target, **options).as_build()
    program, constants = build.contents.program, build.contents.constants
    names = dict.fromkeys(build.contents.texts)
    kernels = [n.removeprefix("loops/").removesuffix(".txt") for n in names if "loops/" in n]
    # The host program holds a seal over all else, and would be listed with every other change.
    codes = list(map(digest, program.objects[1:]))
    # Kernels that share code have one object together.
    named = kernels if len(kernels) == len(codes) else [f"code {k}" for k in range(len(codes))]
    found = dict(zip(named, codes, strict=True))
    return {**found, "constants": digest(b"".join(digest(c.data).encode() for c in constants))}


def kernel_digests(function: tw.Function, target: str) -> dict[str, str]:
    return {function.name: digest(tw.build(function, target).object_code)}


def programs(files: Sequence[Path]) -> Iterator[tuple[str, Any]]:
    """Names of programs with what gives their digests for a target."""
    for name, make in NETWORKS.items():
        yield f"network {name}", lambda t, make=make: model_digests(make(), t)
    for name in NARROWED:
        make = NETWORKS[name]
        yield (
            f"network {name}, int8",
            lambda t, make=make: model_digests(make(), t, precision="int8-dynamic"),
        )
    for file in files:
        yield f"model {file.name}", lambda t, file=file: model_digests(str(file), t)
    from kernels import cases

    for case in cases():
        function = case.function
        yield f"kernel {case.name}", lambda t, f=function: kernel_digests(f, t)


def collect(files: Sequence[Path]) -> Digests:
    found: Digests = {}
    for name, digests in programs(files):
        print(name, file=sys.stderr, flush=True)
        found[name] = {cpu: digests(target) for cpu, target in TARGETS.items()}
    return found


def differences(before: Digests, now: Digests) -> list[str]:
    """A line for each kernel whose code is not what it was."""
    lines = list[str]()
    for name in [*before, *(n for n in now if n not in before)]:
        for cpu in TARGETS:
            old, new = (d.get(name, {}).get(cpu, {}) for d in (before, now))
            for kernel in [*old, *(k for k in new if k not in old)]:
                if old.get(kernel) != new.get(kernel):
                    what = "is new" if kernel not in old else "differs"
                    lines.append(f"{name}, {cpu}: {kernel} {what if kernel in new else 'is gone'}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    options = parser.parse_args()
    now = collect(options.models)
    if options.action == "record":
        options.file.write_text(json.dumps(now, indent=1), encoding="utf-8")
        return 0
    changed = differences(json.loads(options.file.read_text(encoding="utf-8")), now)
    count = sum(len(k) for cpus in now.values() for k in cpus.values())
    print(*changed, f"{len(changed)} of {count} kernels differ", sep="\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
