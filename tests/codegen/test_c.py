"""Portable C: what it looks like, what compilers say of it, and whole networks through it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.network_cases import CASES, Case
from tests.networks import mlp, random
from tilewright import te
from tilewright.codegen.c import compiler
from tilewright.graph import Builder, SequenceType, TensorType, evaluate
from tilewright.ir import Function, Var, call, cast, parse_function
from tilewright.support.errors import UserError

from .conftest import elementwise

needs_compiler = pytest.mark.skipif(not compiler.find_compiler(), reason="no C compiler")
pytestmark = needs_compiler


def built(text: str, **options: Any) -> tw.Module:
    return tw.build(tw.Schedule(parse_function(text)), "c", **options)


def compiled_with(source: str, folder: Path, *options: str) -> str:
    """What the compiler says to a source file under these options."""
    (folder / "code.c").write_text(source)
    command = [*(compiler.find_compiler() or []), "-std=c99", *options]
    command += ["-o", str(folder / "code.o"), str(folder / "code.c")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stderr


TEXT = """
def f(A: f32[n, 8], B: f32[n, 8], k: i32):
    for i in parallel(n):
        for j in vectorized(8):
            B[i, j] = exp(A[i, j]) if i < 3 else A[i, 7 - j] / f32(k)
"""


def test_loops_look_like_loops() -> None:
    text = built(TEXT).code
    assert "for (int64_t j = 0; j < 8; ++j)" in text
    assert "= expf(A[" in text or "? expf(A[" in text
    assert "tw_pool_run(" in text


def everything() -> Function:
    """Every operation on some types, so that all inline functions are there."""
    values: list[Any] = []
    inputs: list[Var] = []
    for name in ("int8", "uint16", "int32", "int64", "uint64", "float32", "float64", "bfloat16"):
        x, y = Var(f"x_{name}", name), Var(f"y_{name}", name)
        inputs += [x, y]
        values += [x + y, x * y, cast(x, "int32"), cast(x, "float64"), cast(x, "uint8")]
        if x.dtype.is_integer:
            values += [x // y, x % y, x << y, x >> y, call("mulhi", x, y), call("clz", x)]
            if x.dtype.is_signed and x.dtype.bits < 64:
                values += [call("mulhi_doubled", x, y), call("shift_nearest", x, y)]
        elif x.dtype.bits > 16:
            values += [call("sigmoid", x), call("round", x), call("pow", x, y)]
    return elementwise(values, inputs, 1)


def test_compilers_find_nothing_to_complain_about(tmp_path: Path) -> None:
    strict = ("-c", "-O1", "-Wall", "-Wextra", "-pedantic", "-Wno-unused-function", "-Werror")
    for function in (everything(), parse_function(TEXT)):
        source = tw.build(tw.Schedule(function), "c").code
        assert not compiled_with(source, tmp_path, *strict)


def test_names_of_c_are_no_trouble() -> None:
    text = """
def main(int: f32[n], exp: f32[n], status: i32):
    for for_ in range(n):
        while_ = let(int[for_] + 1.0)
        exp[for_] = exp(while_) + f32(status)
"""
    x, y = random(5), np.zeros(5, np.float32)
    built(text)(x, y, 2)
    np.testing.assert_allclose(y, np.exp(x + 1) + 2, rtol=1e-6)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    module = built(TEXT)
    assert "expf" in module.code
    with pytest.raises(UserError, match=r"no C compiler.*\n.*install one"):
        module(random(4, 8), random(4, 8), 1)
    model = tw.compile(mlp(), "c")
    with pytest.raises(UserError, match="no C compiler"):
        model.run([random(5, 24)])
    with pytest.raises(UserError, match=r"cannot be saved.*not compiled"):
        model.save("unused.twm")


def test_instructions_of_llvm_are_refused() -> None:
    x = te.placeholder((64,), "float32", name="X")
    f = te.function([x], [te.compute((64,), lambda i: x[i] * 2.0, name="Y")], name="f")
    with pytest.raises(UserError, match="there is no LLVM IR"):
        _ = tw.build(f, "c").llvm


def test_code_for_another_machine_is_source_alone() -> None:
    other = "aarch64" if tw.Target.of("c").arch == "x86_64" else "x86_64"
    module = tw.build(tw.Schedule(parse_function(TEXT)), f"c -mtriple={other}-unknown-linux-gnu")
    assert "expf" in module.code
    with pytest.raises(UserError, match="compiler of this machine"):
        _ = module.object_code


# ---- networks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_networks_give_the_answers_of_the_reference(case: Case) -> None:
    graph = case.graph()
    wanted = evaluate(graph, list(case.inputs))
    got = tw.compile(graph, "c").run(list(case.inputs))
    for result, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_sequences() -> None:
    b = Builder()
    xs = b.input("xs", SequenceType(TensorType("float32", (2,))))
    longer = b.sequence_insert(xs, b.constant(np.full(2, 7, np.float32)))
    b.output(b.sequence_erase(longer, b.constant(0, "int64")), b.sequence_length(longer))
    model = tw.compile(b.build(), "c")
    items = [random(2, seed=k) for k in range(3)]
    left, count = model.run([items])
    assert count == 4 and len(left) == 3
    np.testing.assert_array_equal(left[0], items[1])
    np.testing.assert_array_equal(left[-1], [7, 7])


def test_failures_are_told() -> None:
    b = Builder()
    x, at = b.input("x", "f32", ("n",)), b.input("at", "i64", ("k",))
    b.output(b.gather(x, at, axis=0))
    model = tw.compile(b.build(), "c")
    with pytest.raises(UserError, match="stopped"):
        model.run([random(4), np.array([9])])


def test_models_are_saved_and_profiled(tmp_path: Path) -> None:
    x, graph = random(5, 24), mlp()
    model: Any = tw.compile(graph, "c")
    assert {e.name for e in model.profile([x], runs=2).events} == set(model.kernels)
    model.save(tmp_path / "m.twm")
    got = tw.load(tmp_path / "m.twm").run([x])
    for result, want in zip(got, evaluate(graph, [x]), strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
