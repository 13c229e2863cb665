"""Whole networks compiled for other architectures, run under their emulators, beside NumPy.

Sizes are free, threads are two, and code goes through an exported library: kernels, host program,
thread pool and what links them are all of the other architecture. `make test` takes a sample;
`make test-emulated` (TILEWRIGHT_EMULATE=all) takes all of them.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.emulator import needed_emulator, other_architecture
from tests.network_cases import CASES, Case
from tests.test_compile import random, weights
from tilewright.graph import Builder, evaluate

ALL = os.environ.get("TILEWRIGHT_EMULATE") == "all"


SAMPLE = ("convnet", "lstm", "functions")
#: Processors without and with dot products; those that QEMU knows to emulate have no AVX-512.
PROCESSORS: dict[str, dict[str, str]] = {
    "aarch64": {"cortex-a72": "cortex-a72", "neoverse-n1": "neoverse-n1", "neoverse-v1": "max"},
    "x86_64": {"x86-64": "qemu64", "haswell": "max"},
    "arm": {"cortex-a9": "cortex-a9", "cortex-a7": "cortex-a7"},
    "riscv64": {"rv64gc": "rv64", "rv64gcv": "rv64,v=true,vlen=128,vext_spec=v1.0"},
}
#: Of architectures that few have, the sample takes one network each.
_FEW = {"arm": "convnet", "riscv64": "lstm"}


def _trials() -> list[tuple[Case, str, str]]:
    """In a sample each network is for one processor, those of a kind that most people have."""
    archs = (other_architecture(), *_FEW)
    if ALL:
        return [(case, arch, cpu) for arch in archs for cpu in PROCESSORS[arch] for case in CASES]
    taken = {arch: (_FEW[arch],) if arch in _FEW else SAMPLE for arch in archs}
    return [
        (case, arch, list(PROCESSORS[arch])[1])
        for arch in archs
        for case in CASES
        if case.name in taken[arch]
    ]


@pytest.mark.parametrize(("case", "arch", "cpu"), _trials(), ids=str)
def test_answers_are_those_of_the_reference(case: Case, arch: str, cpu: str) -> None:
    emulated = PROCESSORS[arch][cpu]
    emulator = needed_emulator(arch, emulated)
    graph = case.graph()
    wanted = evaluate(graph, list(case.inputs))
    model = tw.compile(graph, f"llvm -mcpu={cpu} -num-cores=2")
    with pytest.raises(tw.UserError, match=f"it is for {arch}"):
        model.run(list(case.inputs))
    for got, want in zip(emulator.run_model(model, case.inputs, wanted), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not ALL, reason="`make test-emulated` runs it")
@pytest.mark.parametrize("precision", ["bf16", "int8-dynamic"])
def test_narrow_products(precision: str) -> None:
    arch = other_architecture()
    cpu = list(PROCESSORS[arch])[-1]
    b = Builder()
    b.output(b.dense(b.input("x", "f32", ("n", 64)), weights(48, 64), weights(48)))
    graph, x = b.build(), random(9, 64)
    emulator = needed_emulator(arch)
    (want,) = evaluate(graph, [x])
    model = tw.compile(graph, f"llvm -mcpu={cpu}", precision=precision)
    (got,) = emulator.run_model(model, [x], [want])
    np.testing.assert_allclose(got, want, atol=0.03)
