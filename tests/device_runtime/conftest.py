"""The server in C, built once, where there is what it takes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.device_runtime.built import Runtime
from tests.device_runtime.served import MBEDTLS, Served
from tilewright.device_runtime import SOURCE, build_runtime, runtime_sources, serving_options


def _require_what_it_takes() -> None:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    if not MBEDTLS.is_dir():
        pytest.skip("there is no mbedTLS: `make emulators` gets it")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _require_what_it_takes()
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


@pytest.fixture(scope="session")
def sanitized_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server with every access to memory of our own checked."""
    _require_what_it_takes()
    folder = tmp_path_factory.mktemp("sanitized_server")
    words = ["cc", "-g", "-O1", "-std=c11", "-D_GNU_SOURCE", *serving_options(MBEDTLS)]
    library = [*words, "-c", *map(str, sorted((MBEDTLS / "library").glob("*.c")))]
    subprocess.run(library, cwd=folder, check=True)
    own = [*runtime_sources(), *sorted((SOURCE / "server").glob("*.c"))]
    words += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *map(str, own)]
    made = folder / "tilewright-run"
    words += [*map(str, folder.glob("*.o")), "-o", str(made), "-lm", "-lpthread"]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("the compiler has no AddressSanitizer")
    return made


@pytest.fixture
def served(program: Path, tmp_path: Path) -> Iterator[Served]:
    made = Served(program, tmp_path)
    yield made
    assert made.stop() == 0
