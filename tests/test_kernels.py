"""Kernels as object code: kept on disk, compiled side by side, prepared once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.network_cases import CASES, Case
from tilewright import te
from tilewright.graph import Builder, Module, evaluate
from tilewright.ir import evaluate as evaluate_expr
from tilewright.ir import function_text, parse_function, same_function
from tilewright.kernels import compiled, workers
from tilewright.kernels.compiled import (
    CompiledKernel,
    Options,
    ScheduledKernel,
    scheduled_kernel,
)
from tilewright.kernels.formulas import expr_of, formula_of
from tilewright.kernels.jobs import Job, Result, packed, perform
from tilewright.kernels.together import compile_kernels
from tilewright.target import Target

HOST = Target.of("llvm")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    return tmp_path


def function(factor: float, name: str = "scale") -> tw.Function:
    x = te.placeholder((100,), name="X")
    return te.function([x], [te.compute((100,), lambda i: x[i] * factor, name="Y")], name=name)


def refuse(*_: Any) -> Result:
    raise AssertionError("this was compiled already")


def test_a_kernel_is_compiled_once(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = compile_kernels([function(2.0)], HOST, [Options()])
    monkeypatch.setattr(workers, "perform", refuse)
    (again,) = compile_kernels([function(2.0)], HOST, [Options()])
    assert first == again
    for other in ((function(3.0), HOST, Options()), (function(2.0), HOST, Options(checked=True))):
        with pytest.raises(AssertionError, match="compiled already"):
            compile_kernels([other[0]], other[1], [other[2]])


def test_another_version_of_the_tool_compiles_anew(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_kernels([function(2.0)], HOST, [Options()])
    monkeypatch.setattr(compiled, "tool_version", lambda: "other")
    monkeypatch.setattr(workers, "perform", refuse)
    with pytest.raises(AssertionError, match="compiled already"):
        compile_kernels([function(2.0)], HOST, [Options()])


def test_the_tool_is_known_by_its_text(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root, written in ((one, 10**9), (other, 2 * 10**9)):
        (root / "room").mkdir(parents=True)
        (root / "room" / "file.py").write_text("x = 1\n")
        os.utime(root / "room" / "file.py", (written, written))
    assert compiled.sources_digest(one) == compiled.sources_digest(other)
    (one / "room" / "file.py").write_text("x = 2\n")
    os.utime(one / "room" / "file.py", (10**9, 10**9))
    assert compiled.sources_digest(one) != compiled.sources_digest(other)
    (other / "room" / "file.py").rename(other / "file.py")
    (other / "file.py").write_text("x = 2\n")
    assert compiled.sources_digest(one) != compiled.sources_digest(other)


def test_a_damaged_entry_is_compiled_anew(own_cache: Path) -> None:
    (first,) = compile_kernels([function(2.0)], HOST, [Options()])
    for path in own_cache.rglob("*.bin"):
        path.write_bytes(path.read_bytes()[:-7])
    assert compile_kernels([function(2.0)], HOST, [Options()]) == [first]


def test_packing_keeps_everything() -> None:
    kernel = CompiledKernel("k", ("a {}", "b"), ["mul", 4, ["number", 1]], b"code")
    assert CompiledKernel.unpacked(kernel.packed()) == kernel
    n, m = te.var("n"), te.var("m")
    assert str(kernel.workspace_for([n, m])) == "4 * m"


def test_workers_give_what_this_process_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_COMPILE_JOBS", "3")
    functions = [function(float(k), f"scale_{k}") for k in range(12)]
    jobs = [Job(task, f, Options()) for f in functions for task in ("compile", "schedule")]
    jobs += [Job("generate", j.function, Options(), _scheduled(j)) for j in jobs[1::2]]
    here = [packed(perform(job, HOST)) for job in jobs]
    done_here: list[str] = []

    def slow(job: Job, target: Target) -> Result:
        time.sleep(0.3)
        done_here.append(job.function.name)
        return perform(job, target)

    monkeypatch.setattr(workers, "perform", slow)
    with workers.processes(HOST, len(jobs)) as processes:
        first = processes.perform(jobs[:8])
        assert [*map(packed, [*first, *processes.perform(jobs[8:])])] == here
    assert len(done_here) < len(jobs), "no worker did anything"


def _scheduled(job: Job) -> ScheduledKernel:
    return scheduled_kernel(job.function, HOST, job.options)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_workers_read_the_kernels_of_networks(case: Case) -> None:
    """Workers get them as text."""
    model = tw.compile(case.graph())
    assert isinstance(model, tw.Model) and model.kernels
    for name in model.kernels:
        kernel = model.ir(name)
        assert same_function(parse_function(function_text(kernel)), kernel), name


def test_workers_that_die_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_COMPILE_JOBS", "2")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    functions = [function(float(k), f"scale_{k}") for k in range(5)]
    with workers.processes(HOST, len(functions)) as processes:
        made = processes.perform([Job("compile", f, Options()) for f in functions])
    assert [m.name for m in made if isinstance(m, CompiledKernel)] == [f.name for f in functions]


SCRIPT = """
import sys, time
import numpy as np, tilewright as tw
from tilewright.graph import Builder
print("begins", flush=True)
b = Builder()
x = b.input("x", "f32", (8, 8))
for k in range(8):
    x = b.softmax(b.matmul(x, np.full((8, 8), k, "f4")) if k % 2 else b.exp(x), axis=k % 2)
    x = b.transpose(x) if k % 3 == 0 else x
b.output(x)
tw.compile(b.build())
print("done", flush=True)
"""


def _script(tmp_path: Path) -> subprocess.Popen[str]:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    root = str(Path(tw.__file__).parent.parent)
    env = {
        **os.environ,
        "TILEWRIGHT_CACHE": "0",
        "TILEWRIGHT_COMPILE_JOBS": "3",
        "PYTHONPATH": root,
    }
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        text=True,
        start_new_session=True,
    )


def test_workers_do_not_run_the_users_program(tmp_path: Path) -> None:
    out, _ = _script(tmp_path).communicate(timeout=120)
    assert out.split() == ["begins", "done"]


def test_workers_import_nothing_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tilewright"
    package.mkdir()
    (package / "__init__.py").write_text("open('imported', 'w')")
    monkeypatch.chdir(tmp_path)
    assert workers.compile_in_worker(function(2.0), HOST, Options())
    assert not (tmp_path / "imported").exists()


#: Compiles with workers that take the first function and never answer. They write their numbers
#: to a pipe once they hold work, so that the interrupt finds them busy.
INTERRUPTED = """
import subprocess, sys, time
import tilewright as tw
from tests.network_cases import CASES, Case
from tilewright import te
from tilewright.kernels import workers
from tilewright.kernels.compiled import Options
from tilewright.kernels.jobs import Job

code = "import os, sys, time; sys.stdin.buffer.read(8); "
code += f"os.write({sys.argv[1]}, str(os.getpid()).encode() + bytes([10])); time.sleep(60)"
start = subprocess.Popen

def started(command, **options):
    return start([command[0], "-c", code], pass_fds=[int(sys.argv[1])], **options)

def busy(*_):
    time.sleep(60)

subprocess.Popen = started
workers.perform = busy
x = te.placeholder((8,), name="X")
functions = [te.function([x], [te.compute((8,), lambda i: x[i] * k, name="Y")]) for k in range(8)]
with workers.processes(tw.Target.of("llvm"), 8) as processes:
    processes.perform([Job("compile", f, Options()) for f in functions])
"""


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_an_interrupt_ends_the_workers_too() -> None:
    heard, told = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(told)],
        stderr=subprocess.PIPE,
        pass_fds=[told],
        env={
            **os.environ,
            "TILEWRIGHT_COMPILE_JOBS": "3",
            "PYTHONPATH": str(Path(tw.__file__).parent.parent),
        },
        start_new_session=True,
        # Processes in the background of a shell ignore the signal, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(told)
    with os.fdopen(heard) as lines:
        pids = [int(lines.readline()) for _ in range(2)]
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        # The pipe is at its end once the last process that could write to it has ended; reading
        # would block as long as there is one.
        os.set_blocking(heard, False)
        assert os.read(heard, 1) == b""
    assert process.returncode != 0 and b"KeyboardInterrupt" in errors
    assert len(set(pids)) == 2 and process.pid not in pids


#: A worker whose compiler takes for ever.
BUSY = """
import sys, time
from tilewright.kernels import workers

def busy(*_):
    print("busy", file=sys.stderr, flush=True)
    time.sleep(60)

workers.perform = busy
workers.serve()
"""


def test_workers_end_with_their_input() -> None:
    """As it does when the parent is killed: no worker goes on compiling for nobody."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(tw.__file__).parent.parent)},
    )
    assert process.stdin is not None and process.stderr is not None
    task = json.dumps(Job("compile", function(2.0), Options()).message()).encode()
    for message in (str(HOST).encode(), task):
        process.stdin.write(len(message).to_bytes(8, "little") + message)
    process.stdin.flush()
    assert process.stderr.readline() == b"busy\n"
    process.stdin.close()
    assert process.wait(timeout=30) == 0


# ---- work on constants --------------------------------------------------------------------------


def product(batch: Any, depth: int = 64, width: int = 48) -> Module:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "f32", (batch, depth))
    w = rng.standard_normal((depth, width)).astype(np.float32)
    b.output(b.relu(b.matmul(x, w)), b.matmul(x, w + np.float32(1)))
    return b.build()


def test_weights_are_packed_before_the_first_run() -> None:
    module = product(40)
    model = tw.compile(module)
    assert isinstance(model, tw.Model)
    kernel = next(k for k in model.kernels if k.startswith("matmul"))
    assert "constants" in model.ir(kernel).attrs
    # The host program passes the packed weights after the other operands, and no others.
    calls = [line for line in str(model.ir()).splitlines() if "kernel.matmul" in line]
    assert all(line.count("constants[") == 1 for line in calls)
    x = np.random.default_rng(1).standard_normal((40, 64)).astype(np.float32)
    for got, want in zip(model.run([x]), evaluate(module, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_formulas_are_plain_data_for_all_that_sizes_are_made_of() -> None:
    n, m = te.var("n"), te.var("m")
    halves = te.cast(te.ceil(te.cast(n, "float64") * te.const(0.5, "float64")), "int64")
    size = te.if_then_else(n > 3, halves * 8, m % 7) + te.maximum(n, m)
    kept = json.loads(json.dumps(formula_of(size, [n, m])))
    again = expr_of(kept, [n, m])
    assert [evaluate_expr(again, {n: a, m: 9}) for a in range(9)] == [
        evaluate_expr(size, {n: a, m: 9}) for a in range(9)
    ]


def test_packed_weights_hold_nothing_else_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels that weights do not fill are zeros: artifacts are the same whenever they are made."""
    b, ones = Builder(), partial(np.ones, dtype=np.float32)
    x = b.input("x", "f32", ("t", 1, 40))
    b.output(*b.emit("lstm", x, ones((1, 4 * 64, 40)), ones((1, 4 * 64, 64))))
    graph, empty, made = b.build(), np.empty, []
    for fill in (0, 170):

        def filled(*args: Any, fill: int = fill, **options: Any) -> Any:
            array = empty(*args, **options)
            array.view(np.uint8)[...] = fill
            return array

        with monkeypatch.context() as patch:
            patch.setattr(np, "empty", filled)
            model: Any = tw.compile(graph, "llvm -mcpu=haswell -num-cores=2")
        made.append([bytes(c.data) for c in model.as_build().contents.constants])
    assert made[0] == made[1]
