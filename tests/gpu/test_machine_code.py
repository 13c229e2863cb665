"""Machine code beside the PTX of kernels: made where NVIDIA's assembler is."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.cli.conftest import model, tilewright
from tests.gpu.driver import Driver
from tilewright.codegen import backend_of
from tilewright.graph import Builder
from tilewright.graph import Module as Graph
from tilewright.kernels.compiled import kernel_key
from tilewright.kernels.levels import kernel_levels
from tilewright.kernels.pipeline import DEFAULTS
from tilewright.runtime import KernelImage, kernels_in
from tilewright.support import libcuda, ptxas
from tilewright.support.errors import UserError

__all__ = ["model", "tilewright"]

H200 = "cuda -arch=sm_90a -mcpu=x86-64-v3"

#: Takes PTX as NVIDIA's does; what it gives is no machine code, but tells what it was made of.
ASSEMBLER = f"""#!{sys.executable}
import sys
if "--version" in sys.argv:
    print("Cuda compilation tools, release 77.1, V77.1.{{fix}}")
    raise SystemExit
options = sys.argv[1:]
arch = next(o for o in options if o.startswith("-arch="))
text = open(options[-1]).read()
if "{{refused}}" in text:
    print("ptxas fatal: Unsupported .version", file=sys.stderr)
    raise SystemExit(255)
print("ptxas info: Used 40 registers", file=sys.stderr)
with open(options[options.index("-o") + 1], "wb") as file:
    file.write(f"{{{{arch}}}} {{{{len(text)}}}}".encode() + bytes(9))
"""


def write_tool(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    path = write_tool(tmp_path / "ptxas", ASSEMBLER.format(fix=3, refused="nothing like this"))
    monkeypatch.setenv("TILEWRIGHT_PTXAS", path)
    return path


def graph() -> Graph:
    b = Builder()
    x = b.input("x", "f32", ("n", 16))
    w = np.ones((16, 8), np.float32)
    b.output(b.softmax(b.matmul(x, w)))
    return b.build()


def held(model: Any) -> set[bool]:
    """Whether launches have machine code."""
    return {"machine_code" in said for said in model.launches.values()}


def objects(model: Any) -> bytes:
    return b"".join(model.as_build().contents.program.objects)


def image_in(code: bytes, entry: str) -> KernelImage:
    """The first image of a kernel in an object file."""
    start = code.index(b'{"entry": "' + entry.encode())
    said = next(s for s in kernels_in(code) if s["entry"] == entry)
    end = code.index(b"\0", start) + 1 + said.get("machine_code", (0, 0))[0]
    return KernelImage.read(code[start:end])


def test_kernels_hold_machine_code_beside_their_text(assembler: str) -> None:
    model: Any = tw.compile(graph(), H200)
    assert held(model) == {True}
    code = objects(model)
    for name in model.launches:
        image = image_in(code, name)
        text = image.text.rstrip(b"\0").decode()
        assert ".target sm_90a" in text
        assert image.machine_code == f"-arch=sm_90a {len(text)}".encode() + bytes(9)
        assert image.forms == (image.machine_code, image.text)


def test_without_an_assembler_kernels_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_PTXAS", "off")
    model: Any = tw.compile(graph(), H200)
    assert held(model) == {False}
    for name in model.launches:
        image = image_in(objects(model), name)
        assert image.forms == (image.text,)
        assert b".target sm_90a" in image.text


def test_code_that_the_assembler_refuses_stays_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write_tool(tmp_path / "ptxas", ASSEMBLER.format(fix=4, refused=".version"))
    monkeypatch.setenv("TILEWRIGHT_PTXAS", path)
    model: Any = tw.compile(graph(), H200)
    assert held(model) == {False}


def test_damaged_machine_code_is_left_aside(assembler: str) -> None:
    code = objects(tw.compile(graph(), H200))
    entry = next(kernels_in(code))["entry"]
    start = code.index(b'{"entry": "' + entry.encode())
    whole = image_in(code, entry)
    end = code.index(b"\0", start) + 1
    changed = bytearray(code[start : end + len(whole.machine_code)])
    changed[-12] ^= 1
    assert KernelImage.read(bytes(changed)).forms == (whole.text,)
    assert KernelImage.read(bytes(changed[:-3])).forms == (whole.text,)


def test_code_in_the_cache_depends_on_the_assembler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model: Any = tw.compile(graph(), "simt")
    function = model.ir(model.kernels[0])
    keys: list[str] = []
    for fix in (3, 4):
        folder = tmp_path / str(fix)
        folder.mkdir()
        path = write_tool(folder / "ptxas", ASSEMBLER.format(fix=fix, refused="nothing"))
        monkeypatch.setenv("TILEWRIGHT_PTXAS", path)
        keys.append(kernel_key(function, tw.Target.of(H200), DEFAULTS))
    monkeypatch.setenv("TILEWRIGHT_PTXAS", "off")
    keys.append(kernel_key(function, tw.Target.of(H200), DEFAULTS))
    assert len(set(keys)) == 3
    assert backend_of(tw.Target.of(H200)).tools() == "no ptxas"
    assert backend_of(tw.Target.of("llvm")).tools() == ""


def test_inspect_tells(assembler: str, model: Path, tilewright: Any) -> None:
    options = ("inspect", model, "--target", H200)
    facts = tilewright(*options).out
    assert re.search(r"machine code\s+of 2 of 2 launches, for sm_90a\n", facts)
    found = tilewright(*options, "--json").json
    assert found["machine_code"] == {"launches": 2, "assembled": 2}
    shown = tilewright(*options, "--asm").out
    assert ".target sm_90a" in shown and "ptxas 77.1.3" in shown and "Used 40 registers" in shown
    assert f"ptxas 77.1.3 ({assembler})" in tilewright("doctor").out


def test_inspect_tells_what_the_driver_compiles(
    monkeypatch: pytest.MonkeyPatch, model: Path, tilewright: Any
) -> None:
    monkeypatch.setenv("TILEWRIGHT_PTXAS", "off")
    shown = tilewright("inspect", model, "--target", H200).out
    assert "of 0 of 2 launches" in shown and "the driver compiles the others" in shown
    assert "pip install tilewright[cuda]" in tilewright("doctor").out


# ---- finding it ---------------------------------------------------------------------------------


def test_an_assembler_of_a_package_goes_before_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TILEWRIGHT_PTXAS", raising=False)
    places = {"package": tmp_path / "package", "path": tmp_path / "path"}
    for fix, place in enumerate(places.values()):
        place.mkdir()
        write_tool(place / "ptxas", ASSEMBLER.format(fix=fix, refused="nothing"))
    monkeypatch.setattr(ptxas, "_package_folders", lambda: (str(places["package"]),))
    monkeypatch.setenv("PATH", str(places["path"]))
    found = ptxas.find_assembler()
    assert found is not None and found.path == str(places["package"] / "ptxas")
    write_tool(places["package"] / "ptxas", "#!/bin/sh\nexit 1\n")
    ptxas._find.cache_clear()
    found = ptxas.find_assembler()
    assert found is not None and found.version == "77.1.1"


def test_a_toolkit_is_found_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TILEWRIGHT_PTXAS", raising=False)
    monkeypatch.setattr(ptxas, "_package_folders", tuple)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert ptxas.find_assembler() is None
    (tmp_path / "bin").mkdir()
    write_tool(tmp_path / "bin" / "ptxas", ASSEMBLER.format(fix=9, refused="nothing"))
    ptxas._find.cache_clear()
    found = ptxas.find_assembler()
    assert found is not None and found.version == "77.1.9"


# ---- loading ------------------------------------------------------------------------------------


class Refusing(Driver):
    """A driver that takes code that holds a word, and refuses other code by a status."""

    def __init__(self, word: bytes, status: int) -> None:
        super().__init__()
        self._word, self._status = word, status
        self.asked: list[bytes] = []

    def cuModuleLoadData(self, _: Any, code: bytes) -> int:
        self.asked.append(bytes(code))
        return 0 if self._word in code else self._status


FORMS = (b"machine code", b"text\0")


def loading(cuda: tuple[Any, Driver], driver: Refusing, monkeypatch: pytest.MonkeyPatch) -> Any:
    device, _ = cuda
    monkeypatch.setattr(libcuda, "_load", lambda: (driver, ""))
    libcuda._function.cache_clear()
    return device.make("k", FORMS, 0)


def test_machine_code_is_loaded_first(
    cuda: tuple[Any, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Refusing(b"", 0)
    loading(cuda, driver, monkeypatch)
    assert driver.asked == [b"machine code"]


@pytest.mark.parametrize("status", [200, 209])
def test_what_the_driver_refuses_is_compiled_by_it(
    cuda: tuple[Any, Driver], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    driver = Refusing(b"text", status)
    loading(cuda, driver, monkeypatch)
    assert driver.asked == list(FORMS)


def test_code_that_no_form_of_loads(
    cuda: tuple[Any, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"(?s)k cannot be loaded on cuda:0.*CUDA 13.0.*the driver"):
        loading(cuda, Refusing(b"none of them", 222), monkeypatch)


def test_other_failures_are_told_at_once(
    cuda: tuple[Any, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Refusing(b"text", libcuda.OUT_OF_MEMORY)
    with pytest.raises(UserError, match="out of memory on cuda:0: bytes for k are needed"):
        loading(cuda, driver, monkeypatch)
    assert driver.asked == [b"machine code"]


# ---- the true one -------------------------------------------------------------------------------


@pytest.mark.skipif(
    ptxas.find_assembler() is None or "TILEWRIGHT_PTXAS" in os.environ, reason="no ptxas is here"
)
def test_the_assembler_makes_files_for_the_gpu() -> None:
    model: Any = tw.compile(graph(), H200)
    assert held(model) == {True}
    for name in model.launches:
        code = image_in(objects(model), name).machine_code
        assert code.startswith(b"\x7fELF")
        assert code[18:20] == (190).to_bytes(2, "little")  # CUDA's machine
    levels = kernel_levels(model.ir(model.kernels[0]), model.target)
    assert re.search(r"// ptxas info.*Used \d+ registers", levels.asm)
