"""The runtime without Python, built for other architectures and run under their emulators.

`make test` takes two networks on the architecture that this machine is not; `make test-emulated`
takes all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.device_runtime.built import Runtime, saved
from tests.emulated.emulator import needed_emulator, other_architecture
from tests.emulated.test_models import ALL, PROCESSORS
from tests.network_cases import CASES, Case
from tilewright.device_runtime import build_runtime
from tilewright.graph import evaluate

#: The program alone, with the C library in it.
_LARGEST = 400_000
_ARCHITECTURES = (other_architecture(), *(("riscv64", "arm") if ALL else ()))
_SAMPLE = ("lstm", "movement")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those that were built; a C library is built with the first one."""
    return {"folder": tmp_path_factory.mktemp("runtimes")}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("arch", _ARCHITECTURES)
@pytest.mark.parametrize("case", [c for c in CASES if ALL or c.name in _SAMPLE], ids=str)
def test_answers(arch: str, case: Case, programs: dict[str, Path], tmp_path: Path) -> None:
    cpu, emulated = list(PROCESSORS[arch].items())[1]
    emulator = needed_emulator(arch, emulated)
    if arch not in programs:
        path = programs["folder"] / arch
        build_runtime(path, compiler=emulator.compiler, environment=emulator.environment)
        programs[arch] = path
    assert programs[arch].stat().st_size < _LARGEST
    graph = case.graph()
    model, artifact = saved(graph, f"llvm -mcpu={cpu} -num-cores=2", tmp_path)
    runtime = Runtime(programs[arch], emulator.runner)
    wanted = evaluate(graph, list(case.inputs))
    for got, want in zip(runtime.outputs(artifact, model, case.inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
