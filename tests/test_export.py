"""Exported libraries: C programs get what Python gets, bit for bit."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.machines import without_avx512
from tests.networks import mlp, positive, random
from tilewright.graph import ANY, Builder, SequenceType, TensorType
from tilewright.runtime.objectfile import names_of
from tilewright.support.errors import UserError
from tilewright.target import Target

EXAMPLES = Path(__file__).parent.parent / "examples" / "c"
X = random(5, 24, seed=7)
POINTER = ctypes.c_void_p

needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(mlp())


@pytest.fixture(scope="module")
def library(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("export") / "net.so"
    model.export_library(path)
    loaded = ctypes.CDLL(str(path))
    loaded.net_error.restype = ctypes.c_char_p
    return loaded


def addresses(*arrays: Any) -> Any:
    return (POINTER * len(arrays))(*(a.ctypes.data for a in arrays))


def sizes(*values: int) -> Any:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


# ---- C and C++ programs -------------------------------------------------------------------------


def example_module() -> Any:
    spec = importlib.util.spec_from_file_location("export", EXAMPLES / "export.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("c")
    example_module().main(folder)
    return folder, tw.compile(example_module().classifier())


def compile_c(folder: Path, compiler: str, *options: str) -> Path:
    program = folder / f"classify_{compiler.replace('+', 'p')}"
    subprocess.run([compiler, *options, "-o", str(program), "-lpthread"], check=True)
    return program


def run_c(*command: str | Path) -> str:
    return subprocess.run([*command, "6"], capture_output=True, text=True, check=True).stdout


def under_valgrind(*command: str | Path) -> Any:
    """What becomes of a program that is watched."""
    check = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full"]
    done = subprocess.run([*check, *command], capture_output=True, text=True)
    if "unhandled instruction" in done.stderr:
        pytest.skip("this valgrind does not know an instruction of this processor")
    return done


def wanted(model: Any) -> Any:
    """What the C programs print for six rows."""
    x = (np.arange(6 * 24) % 7).astype(np.float32) / np.float32(7) - np.float32(0.4)
    return model.run([x.reshape(6, 24)])[0].ravel()


@needs_cc
@pytest.mark.parametrize(("compiler", "source"), [("cc", "classify.c"), ("c++", "classify.cpp")])
def test_programs_get_what_python_gets(
    example: tuple[Path, Any], compiler: str, source: str
) -> None:
    folder, model = example
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    strict = ["-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    program = compile_c(folder, compiler, *strict, f"{EXAMPLES / source}", f"{folder}/classifier.a")
    assert [float.fromhex(v) for v in run_c(program).split()] == wanted(model).tolist()


@needs_cc
@pytest.mark.skipif(not shutil.which("valgrind"), reason="there is no valgrind")
def test_valgrind_finds_nothing_to_say(example: tuple[Path, Any], tmp_path: Path) -> None:
    """No byte is read before it is written, nor outside what was allocated, and none is lost.

    Answers are near, not equal: valgrind rounds the product of a vector multiply-add by itself.
    """
    _, model = example
    library, source = tmp_path / "classifier.a", str(EXAMPLES / "classify.c")
    readable = tw.compile(example_module().classifier(), target=without_avx512())
    readable.export_library(library, tmp_path / "classifier.h")
    program = compile_c(tmp_path, "cc", "-g", f"-I{tmp_path}", source, str(library))
    done = under_valgrind(program, "6")
    assert (done.returncode, done.stderr) == (0, "")
    got = np.array([float.fromhex(v) for v in done.stdout.split()])
    np.testing.assert_allclose(got, wanted(model), rtol=1e-5)


@needs_cc
def test_an_object_file_needs_nothing_but_libc(example: tuple[Path, Any], tmp_path: Path) -> None:
    _, model = example
    model.export_library(tmp_path / "classifier.o", tmp_path / "classifier.h")
    names = names_of((tmp_path / "classifier.o").read_bytes())
    assert names.defined == {
        *(f"classifier_{n}" for n in ("run", "run_dlpack", "init", "free", "error")),
        "__tvm_ffi_classifier_run",
    }
    assert not {n for n in names.needed if n.startswith("tw_")}
    source = str(EXAMPLES / "classify.c")
    run_c(compile_c(tmp_path, "cc", f"-I{tmp_path}", source, f"{tmp_path}/classifier.o"))


# ---- the library --------------------------------------------------------------------------------


def test_a_shared_library_runs_on_pointers(model: Any, library: Any) -> None:
    for rows in (1, 5):
        y, hidden = np.empty((rows, 10), np.float32), np.empty((rows, 40), np.float32)
        x = X[:rows].copy()
        for threads in (1, 2, 0):
            library.net_init(threads)
            assert library.net_run(addresses(x), addresses(y, hidden), sizes(rows)) == 0
            want = model.run([x])
            np.testing.assert_array_equal(y, want[0])
            np.testing.assert_array_equal(hidden, want[1])
    library.net_free()
    assert library.net_run(addresses(x), addresses(y, hidden), sizes(5)) == 0


@needs_cc
def test_outputs_that_the_run_makes(tmp_path: Path) -> None:
    tw.compile(positive()).export_library(tmp_path / "pos.so", tmp_path / "pos.h")
    library = ctypes.CDLL(str(tmp_path / "pos.so"))
    x, shape, outputs = np.array([1, -1, 2], np.float32), sizes(0), (POINTER * 1)()
    assert library.pos_run(addresses(x), outputs, sizes(3), shape) == 0
    assert shape[0] == 2
    got = np.ctypeslib.as_array(ctypes.cast(outputs[0] or 0, ctypes.POINTER(ctypes.c_float)), (2,))
    np.testing.assert_array_equal(got, [1, 2])
    free = ctypes.CDLL(None).free
    free.argtypes = [POINTER]
    free(outputs[0])
    assert "int64_t *shapes" in (tmp_path / "pos.h").read_text()
    assert not hasattr(library, "pos_run_dlpack")


@needs_cc
def test_programs_that_stop_say_why(tmp_path: Path) -> None:
    proto = make(
        [node("Reshape", ["x", "shape"], name="100% odd")],
        [info("x", shape=["n"])],
        ["y"],
        {"shape": np.array([-1, 3])},
    )
    model = tw.compile(proto)
    model.export_library(tmp_path / "r.so")
    library = ctypes.CDLL(str(tmp_path / "r.so"))
    library.r_error.restype = ctypes.c_char_p
    x, y = random(4), random(6)
    with pytest.raises(UserError) as caught:
        model.run([x])
    assert library.r_run(addresses(x), addresses(y), sizes(4)) != 0
    # Python has tried it once more with the sizes as numbers.
    told, _, _ = str(caught.value.reason).partition("; with these sizes")
    assert library.r_error().decode() == f"r stopped: {told}"
    assert library.r_run(addresses(y), addresses(random(6)), sizes(6)) == 0


@needs_cc
def test_matrix_registers_are_asked_for_before_the_first_run(tmp_path: Path) -> None:
    """Linux lets a process use AMX once it has asked; here the program answers in its place."""
    model: Any = tw.compile(mlp())
    here = model._target
    model._target = replace(here, features=here.features | {"amx-tile"})
    model.export_library(tmp_path / "net.o", tmp_path / "net.h")
    model._target = here
    (tmp_path / "ask.c").write_text(_ASKS)
    program = compile_c(tmp_path, "cc", f"-I{tmp_path}", f"{tmp_path}/ask.c", f"{tmp_path}/net.o")
    asked, refused, why = run_c(program).splitlines()
    # Refused at first, then let: two runs follow, and the second asks no more.
    assert (asked, refused) == ("2 158 1023 18", "1 0 0")
    assert why.startswith("net stopped: it may use AMX") and "-mattr=-amx-tile" in why
    model.export_library(tmp_path / "net.o")
    assert "syscall" not in names_of((tmp_path / "net.o").read_bytes()).needed


_ASKS = """
#include <stdarg.h>
#include <stdio.h>
#include "net.h"

static int asked;
static long told[3];

long syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  told[0] = number, told[1] = va_arg(rest, long), told[2] = va_arg(rest, long);
  va_end(rest);
  return asked++ ? 0 : -1;
}

int main(void) {
  static float x[5 * 24], y[5 * 64], hidden[5 * 64];
  const void *inputs[] = {x};
  void *outputs[] = {y, hidden};
  const int64_t dims[] = {5};
  char why[256];
  int first = net_run(inputs, outputs, dims);
  snprintf(why, sizeof why, "%s", net_error());
  int second = net_run(inputs, outputs, dims), third = net_run(inputs, outputs, dims);
  printf("%d %ld %lx %ld\\n%d %d %d\\n%s\\n", asked, told[0], told[1], told[2], first != 0, second,
         third, why);
  net_free();
}
"""


@needs_cc
def test_one_program_may_hold_several_models(tmp_path: Path) -> None:
    model = tw.compile(mlp())
    for name in ("first", "second"):
        model.export_library(tmp_path / f"{name}.o", tmp_path / f"{name}.h")
    text = (
        '#include "first.h"\n#include "second.h"\nint main(void) { first_init(1), second_init(1); }'
    )
    (tmp_path / "both.c").write_text(text)
    objects = [str(tmp_path / f"{name}.o") for name in ("first", "second")]
    run_c(compile_c(tmp_path, "cc", "-std=c99", f"-I{tmp_path}", f"{tmp_path}/both.c", *objects))


def collected(target: str = "llvm") -> Any:
    """The rows of x, each twice, which are collected and put together again; and row k."""
    b = Builder()
    x, k = b.input("x", "f32", ("n", 3)), b.input("k", "i64")
    parts = b.split_to_sequence(x)

    def trip(i: Any, rows: Any) -> Any:
        row = b.sequence_at(parts, i)
        return [b.sequence_insert(b.sequence_insert(rows, row), row)]

    rows = b.loop(b.sequence_length(parts), [b.sequence_empty(dtype="f32")], trip)
    b.output(b.concat_from_sequence(rows, axis=0), b.relu(b.sequence_at(rows, k)))
    return tw.compile(b.build(), target=target)


@needs_cc
def test_sequences_inside_of_a_model(tmp_path: Path) -> None:
    collected().export_library(tmp_path / "rows.so")
    library = ctypes.CDLL(str(tmp_path / "rows.so"))
    x, k, last, shape = random(2, 3), np.array(3), random(1, 3), sizes(0, 0)
    outputs = (POINTER * 2)(None, last.ctypes.data)
    assert library.rows_run(addresses(x, k), outputs, sizes(2), shape) == 0
    assert list(shape) == [4, 3]
    np.testing.assert_array_equal(last, np.maximum(x[1:], 0))
    elements = ctypes.cast(outputs[0] or 0, ctypes.POINTER(ctypes.c_float))
    np.testing.assert_array_equal(np.ctypeslib.as_array(elements, (4, 3)), np.repeat(x, 2, 0))
    free = ctypes.CDLL(None).free
    free.argtypes = [POINTER]
    free(outputs[0])


COLLECTING = """
#include <stdio.h>
#include <stdlib.h>
#include "rows.h"
int main(void) {
    float x[6] = {1, 2, 3, 4, 5, 6}, row[3];
    int64_t n = 2, k, shapes[2];
    for (k = 3; k < 5; k++) {
        const void *inputs[2] = {x, &k};
        void *outputs[2] = {0, row};
        if (rows_run(inputs, outputs, &n, shapes)) {
            puts(rows_error());
            continue;
        }
        printf("%d %g %g\\n", (int)shapes[0], ((float *)outputs[0])[11], row[0]);
        free(outputs[0]);
    }
    rows_free();
    return 0;
}
"""


@needs_cc
@pytest.mark.skipif(not shutil.which("valgrind"), reason="there is no valgrind")
def test_sequences_lose_no_memory_whether_a_run_succeeds_or_fails(tmp_path: Path) -> None:
    collected(without_avx512()).export_library(tmp_path / "rows.a", tmp_path / "rows.h")
    (tmp_path / "main.c").write_text(COLLECTING)
    options = [f"-I{tmp_path}", f"{tmp_path}/main.c", f"{tmp_path}/rows.a"]
    done = under_valgrind(compile_c(tmp_path, "cc", "-g", *options))
    assert (done.returncode, done.stderr) == (0, "")
    stopped = "rows stopped: sequence_at: a sequence of 4 has no position 4"
    assert done.stdout.splitlines() == ["4 6 4", stopped]


# ---- DLPack -------------------------------------------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", POINTER),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def tensor(array: Any, **changes: Any) -> Tensor:
    steps = sizes(*(s // array.itemsize for s in array.strides))
    made = Tensor(array.ctypes.data, 1, 0, array.ndim, 2, 32, 1, sizes(*array.shape), steps, 0)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def pointers(*tensors: Tensor) -> Any:
    return (ctypes.POINTER(Tensor) * len(tensors))(*(ctypes.pointer(t) for t in tensors))


def test_dlpack_tensors(model: Any, library: Any) -> None:
    y, hidden = np.empty((4, 10), np.float32), np.empty((4, 40), np.float32)
    x = tensor(X[:4], byte_offset=4 * 24)
    x.data = X.ctypes.data
    outputs = pointers(tensor(y), tensor(hidden, strides=None))
    assert library.net_run_dlpack(pointers(x), outputs) == 0
    np.testing.assert_array_equal(y, model.run([X[1:]])[0])


@pytest.mark.parametrize(
    ("x", "changes", "message"),
    [
        (X, {"device_type": 2}, "input x: the tensor is not in the CPU's memory"),
        (X, {"ndim": 1}, "input x: the tensor has another number of dimensions"),
        (X, {"bits": 64}, "input x: the tensor has another element type"),
        (X, {"code": 0}, "input x: the tensor has another element type"),
        (np.asfortranarray(X), {}, "input x: the tensor has gaps"),
        (X[:, :23].copy(), {}, "input x: dimension 1 is 23, not 24"),
        (X[:4], {}, "output softmax: dimension 0 is 5, not 4"),
    ],
)
def test_tensors_that_do_not_fit(library: Any, x: Any, changes: Any, message: str) -> None:
    y, hidden = np.empty((5, 10), np.float32), np.empty((5, 40), np.float32)
    inputs, outputs = pointers(tensor(x, **changes)), pointers(tensor(y), tensor(hidden))
    assert library.net_run_dlpack(inputs, outputs) == -2
    assert library.net_error().decode() == message


@needs_cc
def test_dimensions_that_follow_from_others(tmp_path: Path) -> None:
    b = tw.graph.Builder()
    x = b.input("x", "f32", ("n", 6))
    b.output(b.reshape(x, shape=[-1, 2]))
    tw.compile(b.build()).export_library(tmp_path / "d.so")
    library = ctypes.CDLL(str(tmp_path / "d.so"))
    given, y = random(3, 6), np.empty((9, 2), np.float32)
    assert library.d_run_dlpack(pointers(tensor(given)), pointers(tensor(y))) == 0
    np.testing.assert_array_equal(y, given.reshape(9, 2))
    assert library.d_run_dlpack(pointers(tensor(given[:2])), pointers(tensor(y))) == -2


def test_tvm_ffi_takes_tensors_of_torch(model: Any, tmp_path: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    torch = pytest.importorskip("torch")
    model.export_library(tmp_path / "net.so")
    module = tvm_ffi.load_module(str(tmp_path / "net.so"))
    x, y, hidden = torch.from_numpy(X), torch.empty(5, 10), torch.empty(5, 40)
    module.net_run(x, y, hidden)
    np.testing.assert_array_equal(y.numpy(), model.run([X])[0])
    with pytest.raises(ValueError, match="dimension 1 is 40, not 10"):
        module.net_run(x, hidden, y)
    with pytest.raises(ValueError, match="it takes 3 tensors: x, softmax, relu"):
        module.net_run(x)
    with pytest.raises(ValueError, match="an argument is no tensor"):
        module.net_run(x, y, 3)


# ---- refusals -----------------------------------------------------------------------------------


def test_what_cannot_be_exported(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"remedy: end its name in \.o, \.a, \.so"):
        model.export_library(tmp_path / "net.dll")
    with pytest.raises(UserError, match="cannot begin the names of C functions"):
        model.export_library(tmp_path / "net.o", name="1-2")
    with pytest.raises(UserError, match="there is no folder"):
        model.export_library(tmp_path / "none" / "net.o")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"none of cc, gcc.* is here\n  remedy: install a C"):
        model.export_library(tmp_path / "net.so")
    assert not list(tmp_path.iterdir())


def test_sequences_are_not_passed_to_libraries(tmp_path: Path) -> None:
    b = Builder()
    items = b.input("items", SequenceType(TensorType("f32", [ANY, 3])))
    b.output(b.sequence_length(items))
    with pytest.raises(UserError, match=r"input items: seq\[float32\[_, 3\]\] is no tensor"):
        tw.compile(b.build()).export_library(tmp_path / "s.o")


def test_linkers_of_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "x86_64" if Target.of("llvm").arch == "aarch64" else "aarch64"
    foreign = tw.compile(mlp(), target=f"llvm -mtriple={other}-unknown-linux-gnu")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"none of {other}-linux-gnu-gcc is here"):
        foreign.export_library(tmp_path / "net.so")
    linker = tmp_path / f"{other}-linux-gnu-gcc"
    linker.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    linker.chmod(0o755)
    with pytest.raises(UserError, match="gcc failed: no such thing"):
        foreign.export_library(tmp_path / "net.so")
    foreign.export_library(tmp_path / "net.o")
    assert names_of((tmp_path / "net.o").read_bytes()).architecture == other


def test_libraries_from_artifacts(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "net.twm")
    tw.load(tmp_path / "net.twm").export_library(tmp_path / "loaded.o", name="net")
    model.export_library(tmp_path / "compiled.o", name="net")
    assert (tmp_path / "loaded.o").read_bytes() == (tmp_path / "compiled.o").read_bytes()
