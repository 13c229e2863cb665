"""`tilewright doctor`: what this machine has and lacks."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
from typing import TYPE_CHECKING, Any, Final

from tilewright.cli.command import Command, Exit

if TYPE_CHECKING:
    from tilewright.cli.console import Console
    from tilewright.target import Caches

#: Packages that matter, and what for.
_PACKAGES: Final = {
    "numpy": "needed",
    "llvmlite": "needed",
    "ml_dtypes": "needed",
    "onnx": "to read models: pip install tilewright[onnx]",
    "rich": "for progress on terminals: pip install tilewright[cli]",
    "onnxruntime": "a peer for bench and compare",
    "openvino": "a peer for bench",
    "torch": "a peer for bench, arrays through DLPack",
    "apache-tvm-ffi": "loads exported libraries",
}
#: Targets that code can always be made for, as a sample.
_TARGETS: Final = ("llvm -mcpu=sapphirerapids", "llvm -mcpu=znver4", "llvm -mcpu=neoverse-v2")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operators",
        metavar="FRAMEWORK",
        help="list the operators of a front end instead: onnx, torch, tflite, …",
    )


def _run(args: argparse.Namespace, console: Console) -> Exit:
    if args.operators is not None:
        return _operators(args.operators, console)
    machine, packages, checks = _machine(), _packages(), _checks()
    console.result(machine=dict(machine), packages=packages)
    console.result(checks=[{"what": w, "ok": ok, "detail": d} for w, ok, d in checks])
    console.facts(machine)
    console.text()
    rows = [(n, v or "–", "" if v else _PACKAGES[n]) for n, v in packages.items()]
    console.table(("package", "version", "if missing"), rows)
    console.text()
    console.table(
        ("check", "", ""), [(w, "ok" if ok else "NO", detail) for w, ok, detail in checks]
    )
    return Exit.DONE if all(ok for _, ok, _ in checks) else Exit.DIFFERENT


def _operators(framework: str, console: Console) -> Exit:
    """The operators that a front end converts."""
    from tilewright.frontends import operators_of

    names = [f"{domain}.{name}" if domain else name for domain, name in operators_of(framework)]
    console.result(framework=framework, operators=names)
    console.text("\n".join(names))
    return Exit.DONE


def _sizes(caches: Caches) -> str:
    sizes = {"L1": caches.l1d, "L2": caches.l2, "L3": caches.l3}
    return ", ".join(f"{name} {size >> 10:,} KiB" for name, size in sizes.items() if size)


def _machine() -> list[tuple[str, Any]]:
    import tilewright
    from tilewright.target import Target

    here = Target.of("llvm")
    return [
        ("tilewright", tilewright.__version__),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("target", str(here)),
        ("vectors", f"{here.vector_registers} registers of {here.vector_bits} bits"),
        ("features", " ".join(sorted(here.features))),
        ("caches", _sizes(here.caches)),
        ("cores", len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"),
        ("linker", shutil.which("cc") or shutil.which("ld") or "none: .so cannot be exported"),
        ("gpu", _gpu()),
        ("gpu assembler", _assembler()),
        ("other targets", "; ".join(_TARGETS) + "; …"),
        ("tuned kernels", _shipped(here.machine)),
    ]


def _shipped(machine: str) -> str:
    """What comes with the package that was tuned on such a machine."""
    from tilewright.shipped import shipped_for
    from tilewright.support.config import config

    if not config().shipped_records:
        return "turned off by TILEWRIGHT_SHIPPED_RECORDS"
    found = shipped_for(machine)
    kernels, decisions = len(found.schedulers), len(found.decisions)
    return f"{kernels} kernels and {decisions} decisions come with the package for this machine"


def _gpu() -> str:
    """The GPU that target `cuda` stands for, or why there is none."""
    from tilewright.support import libcuda
    from tilewright.target import Target

    if reason := libcuda.why_no_driver():
        return f"none: {reason}"
    return f"{Target.of('cuda').cpu}, driver for CUDA {libcuda.driver_version()}"


def _assembler() -> str:
    """What makes machine code of kernels for NVIDIA's GPUs, or what happens without it."""
    from tilewright.support.ptxas import find_assembler, find_disassembler

    found, shown = find_assembler(), find_disassembler()
    if found is None:
        return "none: drivers compile kernels when they load them (pip install tilewright[cuda])"
    disassembler = f"; nvdisasm ({shown})" if shown else ""
    return f"ptxas {found.version} ({found.path}){disassembler}"


def _packages() -> dict[str, str]:
    return {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _checks() -> list[tuple[str, bool, str]]:
    return [_guarded("compile and run a kernel", _builds), _guarded("cache on disk", _caches)]


def _guarded(what: str, check: Any) -> tuple[str, bool, str]:
    try:
        return (what, *check())
    except Exception as error:  # a doctor reports what is broken and goes on
        return what, False, str(error).partition("\n")[0]


def _builds() -> tuple[bool, str]:
    import numpy as np

    import tilewright as tw
    from tilewright import te

    a = te.placeholder((64,), "float32", name="a")
    twice = te.compute((64,), lambda *i: a[i] * 2.0, name="twice")
    module = tw.build(te.function([a], [twice]))
    x, y = np.arange(64, dtype=np.float32), np.empty(64, np.float32)
    module(x, y)
    return bool((y == 2 * x).all()), "twice an array of 64"


def _caches() -> tuple[bool, str]:
    from tilewright.support.cache import default_cache

    cache = default_cache()
    if not cache.enabled:
        return True, "turned off by TILEWRIGHT_CACHE"
    stored = cache.put("0" * 64, b"doctor") and cache.get("0" * 64) == b"doctor"
    return stored, str(cache.directory)


COMMAND = Command(
    "doctor",
    "show what this machine has and lacks, and try a kernel",
    _configure,
    _run,
    ("doctor", "doctor --json"),
)
