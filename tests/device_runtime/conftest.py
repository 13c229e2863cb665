"""The server in C, built once, where there is what it takes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.device_runtime.built import Runtime
from tests.device_runtime.served import MBEDTLS, Served
from tilewright.device_runtime import build_runtime, runtime_sources


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    if not MBEDTLS.is_dir():
        pytest.skip("there is no mbedTLS: `make emulators` gets it")
    made = tmp_path_factory.mktemp("server") / "tilewright-run"
    build_runtime(made, mbedtls=MBEDTLS, compiler=["cc"])
    return made


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """The program with every access to memory checked, where the compiler can do that."""
    program = tmp_path_factory.mktemp("sanitized") / "tilewright-run"
    words = ["cc", "-g", "-O1", "-std=c11", "-D_GNU_SOURCE", "-fsanitize=address,undefined"]
    words += ["-fno-sanitize-recover=all", *map(str, runtime_sources())]
    done = subprocess.run([*words, "-o", str(program), "-lm", "-lpthread"], capture_output=True)
    if done.returncode:
        pytest.skip("the compiler has no AddressSanitizer")
    return Runtime(program)


@pytest.fixture
def served(program: Path, tmp_path: Path) -> Iterator[Served]:
    made = Served(program, tmp_path)
    yield made
    assert made.stop() == 0
