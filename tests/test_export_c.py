"""Models as C files: any compiler makes a library of one, which gives what the reference gives."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.networks import mlp, positive, random
from tilewright.cli.app import main
from tilewright.codegen.c.compiler import find_compiler
from tilewright.graph import Builder, evaluate
from tilewright.support.errors import UserError

needs_compiler = pytest.mark.skipif(not find_compiler(), reason="no C compiler")
POINTER = ctypes.c_void_p


def library(source: Path, *options: str) -> Any:
    """The file as a shared library, with no warning."""
    made = source.with_suffix(".so")
    strict = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    strict += ["-Wno-unused-function", "-ffp-contract=off", "-shared", "-fPIC"]
    command = [*(find_compiler() or []), *strict, *options, "-o", str(made), str(source), "-lm"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loaded = ctypes.CDLL(str(made))
    getattr(loaded, f"{source.stem}_error").restype = ctypes.c_char_p
    return loaded


def addresses(*arrays: Any) -> Any:
    return (POINTER * len(arrays))(*(a.ctypes.data for a in arrays))


def sizes(*values: int) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


@needs_compiler
@pytest.mark.parametrize("options", [[], ["-fopenmp"]], ids=["serial", "threads"])
def test_a_model_with_a_free_size(options: list[str], tmp_path: Path) -> None:
    graph, path = mlp(), tmp_path / "net.c"
    tw.compile(graph, "c").export_library(path, tmp_path / "net.h")
    assert "int32_t net_run(" in (tmp_path / "net.h").read_text()
    assert "dlpack" not in (tmp_path / "net.h").read_text().lower()
    loaded = library(path, *options)
    loaded.net_init(2)
    for n in (1, 7):
        x = random(n, 24, seed=n)
        wanted = evaluate(graph, [x])
        out = [np.empty(w.shape, np.float32) for w in wanted]
        assert loaded.net_run(addresses(x), addresses(*out), sizes(n)) == 0
        for got, want in zip(out, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@needs_compiler
def test_outputs_of_sizes_that_the_data_tell(tmp_path: Path) -> None:
    tw.compile(positive(), "c").export_library(tmp_path / "net.c")
    loaded = library(tmp_path / "net.c")
    x = np.array([1, -2, 3, -4, 5], np.float32)
    out, shape = (POINTER * 1)(), sizes(0)
    assert loaded.net_run(addresses(x), out, sizes(5), shape) == 0
    assert list(shape) == [3]
    got = np.frombuffer(ctypes.string_at(out[0], 12), np.float32)
    np.testing.assert_array_equal(got, [1, 3, 5])
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [POINTER]
    libc.free(out[0])


@needs_compiler
def test_failures_are_told(tmp_path: Path) -> None:
    b = Builder()
    x, at = b.input("x", "f32", (4,)), b.input("at", "i64", (2,))
    b.output(b.gather(x, at, axis=0))
    model = tw.compile(b.build(), "c")
    model.export_library(tmp_path / "net.c")
    loaded, out = library(tmp_path / "net.c"), np.empty(2, np.float32)
    given = [random(4), np.array([1, 9])]
    with pytest.raises(UserError) as error:
        model.run(given)
    assert loaded.net_run(addresses(*given), addresses(out)) != 0
    said = loaded.net_error().decode()
    assert said.startswith("net stopped") and (error.value.reason or "") in said


def test_a_model_for_llvm_has_no_source(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot export net as source.*\n.*target 'c'"):
        tw.compile(mlp()).export_library(tmp_path / "net.c")
    assert not (tmp_path / "net.c").exists()


@needs_compiler
def test_the_command_line_writes_source(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from tests.frontends.onnx.models import info, make, node

    model = make([node("Relu", ["x"], ["y"])], [info("x", "float32", [2, 3])], ["y"], {}, opset=17)
    onnx.save(model, tmp_path / "net.onnx")
    assert main(["export", str(tmp_path / "net.onnx"), "--format", "c"]) == 0
    loaded = library(tmp_path / "net.c")
    x, y = random(2, 3), np.empty((2, 3), np.float32)
    assert loaded.net_run(addresses(x), addresses(y)) == 0
    np.testing.assert_array_equal(y, np.maximum(x, 0))
