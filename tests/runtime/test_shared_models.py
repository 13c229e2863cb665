"""One model in several threads at once, and arrays that share memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.networks import mlp, positive, random
from tilewright.graph import Builder
from tilewright.support.errors import UserError

ROOT = Path(__file__).parents[2]
#: Runs, bound calls, profiles and kernels, while the number of threads changes all the time. It is
#: a process of its own: a pool that ends too early takes the process with it.
STRESS = """
import sys, threading, time
import numpy as np
import tilewright as tw
from tests.networks import mlp, random
from tilewright.tensor import te

sys.setswitchinterval(1e-5)
model = tw.compile(mlp())
a = te.placeholder((1 << 16,), name="A")
kernel = tw.build(te.function([a], [te.compute(a.shape, lambda i: a[i] + 1.0)]))
x = random(512, 24, seed=1)
wanted = model.run([x])[0]
end, wrong, done = time.monotonic() + 4.0, [], {}

def again(name, step):
    def loop():
        try:
            while time.monotonic() < end:
                step()
                done[name] = done.get(name, 0) + 1
        except BaseException as error:
            wrong.append((name, repr(error)))
    return threading.Thread(target=loop)

def same(found):
    if not np.array_equal(found, wanted):
        wrong.append("other results")

def bound():
    call = model.bind([x.copy()])
    for _ in range(20):
        same(call()[0])

def change():
    for count in (1, 2, 3, 4):
        model.set_threads(count)
        kernel.set_threads(count)

def call_kernel():
    y = np.empty(1 << 16, np.float32)
    kernel(np.ones(1 << 16, np.float32), y)
    if (y != 2).any():
        wrong.append("other results of a kernel")

steps = {"run": lambda: same(model.run([x])[0]), "bound": bound, "change": change,
         "profile": lambda: model.profile([x], runs=2), "kernel": call_kernel}
workers = [again(name, steps[name])
           for name in ("run", "run", "bound", "profile", "profile", "kernel", "change", "change")]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert not wrong, wrong[:3]
assert set(done) == set(steps), done
print("ok")
"""


def test_threads_may_change_while_others_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STRESS], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr[-2000:]


def test_a_bound_model_obeys_set_threads_and_keeps_no_pool() -> None:
    import gc
    import weakref

    model: Any = tw.compile(mlp(), threads=7)
    bound = model.bind([random(5, 24)])
    first = bound()[0].copy()
    pool = weakref.ref(model._pool)
    model.set_threads(1)
    gc.collect()
    assert pool() is None
    np.testing.assert_array_equal(bound()[0], first)


def test_profiles_use_the_threads_of_the_model() -> None:
    model: Any = tw.compile(mlp(), threads=2)
    model.profile([random(5, 24)], runs=1)
    model.set_threads(1)
    model.profile([random(5, 24)], runs=1)
    assert model._recorder is not None
    assert model._recorder._recorded._pool is model._pool


# ---- arrays that share memory -------------------------------------------------------------------


@pytest.fixture(scope="module")
def twins() -> Any:
    b = Builder()
    x = b.input("x", "f32", (4,))
    b.output(x + 1.0)
    b.output(x * 2.0)
    return tw.compile(b.build())


def test_outputs_that_share_memory_are_refused(twins: Any) -> None:
    x, memory = np.ones(4, np.float32), np.zeros(7, np.float32)
    for use in (lambda o: twins.run([x], out=o), lambda o: twins.bind([x], o)):
        for out in ([memory[:4], memory[:4]], [memory[:4], memory[3:]], [memory[3:], memory[:4]]):
            with pytest.raises(UserError, match=r"cannot be written.*shares memory with .*output"):
                use(out)
    apart = np.zeros(8, np.float32)
    twins.run([x], out=[apart[4:], apart[:4]])
    np.testing.assert_array_equal(apart, [2, 2, 2, 2, 2, 2, 2, 2])


def test_outputs_that_share_memory_with_inputs_are_refused(twins: Any) -> None:
    memory = np.zeros(7, np.float32)
    for use in (lambda x, o: twins.run([x], out=o), lambda x, o: twins.bind([x], o)):
        with pytest.raises(UserError, match=r"shares memory with that of input x"):
            use(memory[:4], [memory[3:]])
    # What is copied first is not shared.
    (y, _) = twins.run([np.arange(8, dtype=np.float32)[::2]], out=[memory[:4]])
    np.testing.assert_array_equal(y, [1, 3, 5, 7])


def test_outputs_whose_size_the_data_decide_cannot_be_given() -> None:
    model = tw.compile(positive())
    with pytest.raises(UserError, match=r"output .* cannot be written to an array: how large"):
        model.run([random(3)], out=[np.empty(0, np.float32)])


def test_arrays_for_the_outputs_of_hosted_models_are_refused() -> None:
    proto = make([node("StringConcat", ["a", "a"])], [info("a", "string", [2])], ["y"], opset=20)
    with pytest.warns(UserWarning, match="run on the host"):
        model = tw.compile(proto)
    with pytest.raises(UserError, match="cannot write its outputs to given arrays"):
        model.run([np.array(["a", "b"], object)], out=[np.empty(2, object)])
