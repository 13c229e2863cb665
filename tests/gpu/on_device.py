"""What only a machine with a GPU shows: threads, Ctrl-C, kernels that fail, arrays of libraries.

    python -m tests.gpu.on_device pack FOLDER     anywhere
    python -m tests.gpu.on_device run FOLDER      where the GPU is; no compiler is needed there

Each check is a process of its own, since a kernel that fails ends what its process has on the GPU.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tilewright as tw

Array = np.ndarray[Any, Any]
_WIDE, _WORDS, _TURNS = 256, 1000, 12
_IMAGE = (1, 16, 56, 56)


# ---- anywhere -----------------------------------------------------------------------------------


def pack(folder: Path) -> None:
    from tilewright.graph import Builder

    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Array:
        return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)

    classifier = Builder()
    x = classifier.input("x", "f32", ("n", _WIDE))
    for _ in range(4):
        x = classifier.relu(classifier.matmul(x, weights(_WIDE, _WIDE)))
    classifier.output(classifier.softmax(x))
    lookup = Builder()
    rows = lookup.take(weights(_WORDS, 64), lookup.input("at", "i64", ("n",)), axis=0)
    lookup.output(lookup.matmul(rows, weights(64, 64)))
    long = Builder()
    x = y = long.input("x", "f32", (4096, 4096))
    for _ in range(_TURNS):
        y = long.matmul(long.softmax(y), x)
    long.output(y)
    mixed = Builder()
    x, bias = mixed.input("x", "f32", ("n", _WIDE)), mixed.input("bias", "f32", ("n", _WIDE))
    mixed.output(mixed.tanh(mixed.matmul(x, weights(_WIDE, _WIDE))))
    mixed.output(mixed.add(x, bias))
    image = Builder()
    y, before = image.input("x", "f32", _IMAGE), _IMAGE[1]
    for channels, size in ((32, 3), (48, 1), (64, 3)):
        taps = rng.standard_normal((channels, before, size, size)) / size**2
        pads, before = (size // 2,) * 4, channels
        y = image.relu(image.conv(y, taps.astype(np.float32), pads=pads))
    image.output(y)
    row = Builder()
    y = row.input("x", "f32", (1, _WIDE))
    for _ in range(3):
        y = row.relu(row.matmul(y, weights(_WIDE, _WIDE)))
    row.output(y)
    folder.mkdir(parents=True, exist_ok=True)
    builders = {"classifier": classifier, "lookup": lookup, "long": long, "mixed": mixed}
    models = {name: (builder.build(), "float32") for name, builder in builders.items()}
    models |= {"image": (image.build(), "int8-dynamic"), "row": (row.build(), "int8-dynamic")}
    for name, (module, precision) in models.items():
        there = tw.compile(module, "cuda -arch=sm_90a -mcpu=x86-64-v3", precision=precision)
        there.save(folder / f"{name}.twm")
        if name != "long":
            here = tw.compile(module, "llvm -mcpu=x86-64-v3", precision=precision)
            here.save(folder / f"{name}_cpu.twm")
    for name, graph in _dynamic_scales().items():
        tw.compile(graph, "cuda -arch=sm_90a -mcpu=x86-64-v3").save(folder / f"{name}.twm")
        tw.compile(graph, "llvm -mcpu=x86-64-v3").save(folder / f"{name}_cpu.twm")


def _dynamic_scales() -> dict[str, Any]:
    """A row and an image whose scales ONNX's operator finds."""
    from onnx import TensorProto, helper, numpy_helper

    rng, made = np.random.default_rng(1), dict[str, Any]()
    for name, op, shape, taps in (
        ("onnx_row", "MatMulInteger", (1, _WIDE), (_WIDE, 64)),
        ("onnx_image", "ConvInteger", _IMAGE, (24, _IMAGE[1], 3, 3)),
    ):
        held = {"w": rng.integers(-128, 128, taps).astype(np.int8), "ws": np.float32(0.01)}
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            helper.make_node(op, ["q", "w", "z"], ["sums"]),
            helper.make_node("Cast", ["sums"], ["c"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["s", "ws"], ["both"]),
            helper.make_node("Mul", ["c", "both"], ["y"]),
        ]
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        kept = [numpy_helper.from_array(np.asarray(v), k) for k, v in held.items()]
        graph = helper.make_graph(nodes, "g", [given], [out], kept)
        made[name] = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return made


# ---- where the GPU is ---------------------------------------------------------------------------


class Given:
    """The models of a folder, and inputs with the answers of the processor."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._here = folder, dict[str, Any]()

    def model(self, name: str) -> Any:
        return tw.load(self._folder / f"{name}.twm")

    def answer(self, name: str, x: Array) -> Array:
        if name not in self._here:
            self._here[name] = self.model(f"{name}_cpu")
        return self._here[name](x)

    def samples(self, name: str, seed: int, count: int = 4) -> list[tuple[Array, Array]]:
        rng = np.random.default_rng(seed)
        made = []
        for _ in range(count):
            n = int(rng.integers(1, 70))
            shape, words = (n, _WIDE), rng.integers(0, _WORDS, n)
            x = rng.standard_normal(shape).astype(np.float32) if name == "classifier" else words
            made.append((x, self.answer(name, x)))
        return made


def require(made: Any, wanted: Array, what: str) -> None:
    if hasattr(made, "cpu"):
        made = made.cpu()
    np.testing.assert_allclose(np.asarray(made), wanted, rtol=1e-3, atol=1e-5, err_msg=what)


def threads_and_models(given: Given) -> str:
    """Two models in eight threads, by arrays of every kind; each thread sees its own answers, and
    the faults of its own inputs alone."""
    import torch

    models = {name: given.model(name) for name in ("classifier", "lookup")}
    runs, refused, wrong = 0, 0, list[BaseException]()

    def work(seed: int, name: str) -> None:
        nonlocal runs, refused
        samples, turn, rng = given.samples(name, seed), 0, random.Random(seed)
        stream = torch.cuda.Stream()
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            x, wanted = rng.choice(samples)
            turn += 1
            kind = turn % 3
            if kind == 0:
                require(models[name](x), wanted, f"{name}, thread {seed}")
            elif kind == 1:
                with torch.cuda.stream(stream):
                    tensor = torch.from_numpy(x).cuda(non_blocking=True)
                    require(models[name](tensor) * 1, wanted, f"{name}, thread {seed}, a tensor")
            elif name == "lookup":
                bad = x.copy()
                bad[-1] = _WORDS + seed
                try:
                    models[name](bad)
                except tw.UserError as error:
                    assert f"{_WORDS + seed}" in str(error), f"somebody else's fault: {error}"
                    refused += 1
                else:
                    raise AssertionError("an index that leads nowhere is not told")
            runs += 1

    def guarded(seed: int, name: str) -> None:
        try:
            work(seed, name)
        except BaseException as error:
            wrong.append(error)

    names = ["classifier", "lookup"] * 4
    threads = [threading.Thread(target=guarded, args=(k, n)) for k, n in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
    return f"{runs} runs, {refused} inputs refused"


def interrupts(given: Given) -> str:
    """Ctrl-C at any time: the run ends, the next ones are right; also while graphs are made."""
    from tilewright.runtime.devices import device_for

    samples, rng = given.samples("classifier", 1), random.Random(0)
    device: Any = device_for("cuda")
    raised = runs = 0
    model = given.model("classifier")
    model(samples[0][0])
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        delay = rng.choice((1e-4, 3e-4, 1e-3, 5e-3)) * rng.random()
        press = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            press.start()
            for _ in range(1000):
                x, wanted = rng.choice(samples)
                if rng.random() < 0.05:
                    model = given.model("classifier")
                model(x)
                runs += 1
            press.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            raised += 1
        press.join()
        assert not device.is_capturing and not device.waits
        for x, wanted in samples:
            require(model(x), wanted, "after Ctrl-C")
    long = given.model("long")
    x = np.random.default_rng(0).standard_normal((4096, 4096)).astype(np.float32)
    wanted = long(x)
    begin = time.monotonic()
    try:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            long(x)
    except KeyboardInterrupt:
        took = time.monotonic() - begin
    require(long(x), wanted, "a long run after Ctrl-C")
    return f"{raised} of them in {runs} runs; {took * 1e3:.0f} ms where a run takes long"


def dynamic_scales(given: Given) -> str:
    """Bytes with scales that are found at run time, of a single row and of a single image."""
    seen, rng = [], np.random.default_rng(3)
    for name in ("row", "image", "onnx_row", "onnx_image"):
        model, worst = given.model(name), 0.0
        shape = tuple(model.inputs[0].shape)
        for scale in (1.0, 30.0, 1e-3):
            x = (scale * rng.standard_normal(shape)).astype(np.float32)
            wanted = given.answer(name, x)
            for _ in range(3):
                made = model(x)
                worst = max(worst, float(np.abs(made - wanted).max() / np.abs(wanted).max()))
        assert worst < 0.05, f"{name}: {worst}"
        assert not np.asarray(model(np.zeros(shape, np.float32))).any(), "zeros"
        seen.append(f"{name} {worst:.1e}")
    return ", ".join(seen)


def crossings(given: Given) -> str:
    """NumPy arrays go and come within runs, also beside tensors, whatever is still under way."""
    import torch

    model, here = given.model("mixed"), given.model("mixed_cpu")
    rng = np.random.default_rng(4)

    def inputs(n: int) -> list[Array]:
        return [rng.standard_normal((n, _WIDE)).astype(np.float32) for _ in range(2)]

    for n in (7, 7, 7, 7, 64, 7, 64, 64):
        x = inputs(n)
        for made, wanted in zip(model.run(x), here.run(x), strict=True):
            require(made, wanted, f"{n} rows")
        size = n * _WIDE * 4
        assert model.copied.inputs == {"x": size, "bias": size}, model.copied
        assert list(model.copied.outputs.values()) == [size, size], model.copied
    # A tensor and an array: results stay there, and nobody waits for the copy of the array.
    waiting = []
    for _ in range(200):
        x, bias = inputs(64)
        wanted = here.run([x, bias.copy()])
        results = model.run([torch.from_numpy(x).cuda(), bias])
        bias[:] = np.nan  # the run has its copy
        assert model.copied == ({"bias": bias.nbytes}, {}), model.copied
        waiting.append((results, wanted))
    for results, wanted in waiting:
        for made, want in zip(results, wanted, strict=True):
            require(made, want, "beside a tensor")
    # More than is staged.
    large = inputs(1 << 16)
    for made, wanted in zip(model.run(large), here.run(large), strict=True):
        require(made, wanted, "64 MB each")
    return "; ".join(_times_of_copies(given, name) for name in ("classifier", "image", "mixed"))


def _times_of_copies(given: Given, name: str) -> str:
    """Runs on NumPy arrays by copies in the run and by copies around it, in turns."""
    from tilewright.runtime.gpu import staging

    limits, times = {"in": staging._MOST, "around": 0}, {"in": list[float](), "around": []}
    models = {way: given.model(name) for way in limits}
    model, rng = models["in"], np.random.default_rng(5)
    shapes = [[64 if isinstance(d, str) else d for d in s.shape] for s in model.inputs]
    x = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for turn in range(60):
        for way, most in limits.items():
            staging._MOST = most  # type: ignore[misc]
            for k in range(6):
                begin = time.perf_counter()
                models[way].run(x)
                if turn and k > 2:
                    times[way].append(time.perf_counter() - begin)
    staging._MOST = limits["in"]  # type: ignore[misc]
    inside, around = (1e6 * float(np.median(times[way])) for way in limits)
    alone = 1e6 * model.time(x, repeat=5, min_repeat_ms=10).median
    profile = model.profile(x, runs=5)
    rows = ", ".join(f"{r.name} {1e6 * r.seconds:.1f}" for r in profile.copy_rows)
    assert len(profile.copy_rows) == 2, profile
    ways = f"{inside:.0f} µs a run, {around:.0f} by copies around it, {alone:.0f} without"
    return f"{name}: {ways} ({rows})"


def kernel_that_fails(given: Given) -> str:
    """One that reaches for memory that is not there: the process lives, GPU models say why they do
    not run, those of the processor go on."""
    from tilewright.runtime.gpu.arrays import DeviceArray

    model: Any = given.model("classifier")
    other: Any = given.model("lookup")
    (x, wanted), (at, rows) = given.samples("classifier", 1)[0], given.samples("lookup", 1)[0]
    require(model(x), wanted, "before")
    require(other(at), rows, "before")
    nowhere = SimpleNamespace(address=4096, value=None)
    bad: Any = DeviceArray(model.device, x.shape, x.dtype, nowhere)  # type: ignore[arg-type]
    said = [_refused(lambda: np.asarray(model(bad))), _refused(lambda: model(x))]
    said.append(_refused(lambda: other(at)))
    said.append(_refused(lambda: given.model("lookup")(at)))
    for text in said:
        assert "main" in text and "start the process anew" in text, text
    require(given.model("classifier_cpu")(x), wanted, "the processor goes on")
    model = other = bad = None
    gc.collect()
    return "\n".join(["", *(f"    {text}" for text in dict.fromkeys(said))])


def _refused(call: Callable[[], object]) -> str:
    try:
        call()
    except tw.UserError as error:
        return str(error).replace("\n", " ")
    raise AssertionError("it ran")


def out_of_memory(given: Given) -> str:
    """What does not fit is said, and models go on in what there is."""
    import torch

    model = given.model("classifier")
    samples = given.samples("classifier", 1)
    model(samples[0][0])
    free = torch.cuda.mem_get_info()[0]
    taken = torch.empty(free - (512 << 20), dtype=torch.uint8, device="cuda")
    large = np.ones((1 << 19, _WIDE), np.float32)
    said = _refused(lambda: model(large))
    assert "out of memory" in said and "are needed" in said and "are free" in said, said
    gc.collect()
    for x, wanted in samples:
        require(model(x), wanted, "in what is left")
    left = torch.cuda.mem_get_info()[0]
    assert left > 400 << 20, f"{left} bytes are left: what did not fit is kept"
    del taken
    torch.cuda.empty_cache()
    assert model(large).shape == large.shape
    return said


def forks(given: Given) -> str:
    """A process that was forked says what to do, and its parent goes on."""
    model, (x, wanted) = given.model("classifier"), given.samples("classifier", 1)[0]
    require(model(x), wanted, "before")
    long, busy = given.model("long"), threading.Event()
    square = np.ones((4096, 4096), np.float32)
    long(square)

    def work() -> None:
        while not busy.is_set():
            long(square)

    said = ""
    for others in (False, True):
        # Another thread may hold the device at the moment of the fork.
        thread = threading.Thread(target=work)
        if others:
            thread.start()
            time.sleep(0.05)
        read, write = os.pipe()
        if not (child := os.fork()):
            signal.alarm(20)
            try:
                os.write(write, _refused(lambda: model(x)).encode())
            finally:
                os._exit(0)
        ended = os.waitpid(child, 0)[1]
        if others:
            busy.set()
            thread.join()
        assert ended == 0, f"the child ended with {ended}"
        said = os.read(read, 1000).decode()
        assert "spawn" in said, said
    require(model(x), wanted, "the parent")
    return said


def libraries(given: Given) -> str:
    """Arrays of other libraries go in and come out as theirs."""
    model, seen = given.model("classifier"), []
    for make in (_torch, _cupy, _jax):
        try:
            place, kind, back = make()
        except ImportError as error:
            seen.append(f"({error})")
            continue
        for x, wanted in given.samples("classifier", 5):
            for _ in range(3):
                made = model(place(x))
                assert isinstance(made, kind), type(made)
                require(back(made), wanted, kind.__name__)
        seen.append(kind.__module__.partition(".")[0])
    return ", ".join(seen)


def _torch() -> Any:
    import torch

    return lambda x: torch.from_numpy(x).cuda(), torch.Tensor, lambda y: y.cpu().numpy()


def _cupy() -> Any:
    import cupy  # pyright: ignore[reportMissingImports]

    return cupy.asarray, cupy.ndarray, cupy.asnumpy


def _jax() -> Any:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax  # pyright: ignore[reportMissingImports]

    gpu = jax.devices("gpu")[0]
    return partial(jax.device_put, device=gpu), jax.Array, np.asarray


def profiles(given: Given) -> str:
    """Times of kernels by events add up to a little more than a run as one graph takes; no compiler
    is needed for them."""
    sys.modules["llvmlite"] = None  # type: ignore[assignment]
    seen = []
    for name, x in (
        ("classifier", given.samples("classifier", 1)[0][0]),
        ("long", np.random.default_rng(0).standard_normal((4096, 4096)).astype(np.float32)),
    ):
        model = given.model(name)
        profile = model.profile([x], runs=5)
        kernels = 1e3 * profile.seconds
        whole = 1e3 * model.time([x], repeat=5, min_repeat_ms=20).median
        calls = len(profile.events) // profile.runs
        seen.append(f"{name}: {kernels:.3f} ms in {calls} kernels, {whole:.3f} ms")
        assert 0.8 * whole < kernels < 3 * whole + 0.05, seen[-1]
    return "; ".join(seen)


CHECKS: dict[str, Callable[[Given], str]] = {
    c.__name__: c
    for c in (
        threads_and_models,
        interrupts,
        dynamic_scales,
        crossings,
        kernel_that_fails,
        out_of_memory,
        forks,
        libraries,
        profiles,
    )
}


def run(folder: Path, names: list[str]) -> int:
    failed = 0
    for name in names or CHECKS:
        command = [sys.executable, "-m", "tests.gpu.on_device", "check", str(folder), name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            print(f"{name}: HANGS", flush=True)
            failed += 1
            continue
        failed += done.returncode != 0
        print(f"{name}: {'ok' if not done.returncode else 'FAILED'} {done.stdout.rstrip()}")
        if done.returncode or done.stderr:
            print(done.stderr[-3000:], flush=True)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=["pack", "run", "check"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.what == "pack":
        pack(given.folder)
    elif given.what == "check":
        print(CHECKS[given.names[0]](Given(given.folder)), flush=True)
    else:
        return run(given.folder, given.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
