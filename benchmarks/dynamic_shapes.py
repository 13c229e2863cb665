"""One program for all sizes beside programs for one size each: CPU time on one thread.

python benchmarks/dynamic_shapes.py [MODEL.onnx input=n,s …] [--sizes n=1,4 s=32,128]

Without a model: a perceptron, residual networks and encoders, each with a free batch and, where
it has such, a free length, height and width. `--only NAME` takes one of them. The last column is
the speed of the program for all sizes as a share of that of the program for this size; 0.9 is what
we aim at.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.graph import Builder, Module
from tilewright.runtime import RunnableModel, TensorSpec

Sizes = dict[str, int]
Shapes = dict[str, list[Any]]
_RNG = np.random.default_rng(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="*", help="a file, then the shape of each input")
    parser.add_argument("--sizes", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", choices=list(MODELS))
    options = parser.parse_args()
    print(f"{'model':28}{'size':>18}{'free ms':>10}{'fixed ms':>10}{'share':>8}")
    if options.model:
        path, *given = options.model
        shapes = {n: _dims(d) for n, _, d in (text.partition("=") for text in given)}
        report(path, path.rpartition("/")[2], shapes, _grid(options.sizes), options.seconds)
        return
    for name, (module, shapes, grid) in MODELS.items():
        if options.only not in (None, name):
            continue
        report(module(), name, shapes, _grid(grid), options.seconds)


def _dims(text: str) -> list[Any]:
    return [int(d) if d.isdigit() else d for d in text.split(",")]


def _grid(texts: Sequence[str]) -> Iterator[Sizes]:
    """All combinations of the sizes: `n=1,4 s=8` are n=1, s=8 and n=4, s=8."""
    names = [t.partition("=")[0] for t in texts]
    values = [[int(v) for v in t.partition("=")[2].split(",")] for t in texts]
    return (dict(zip(names, chosen, strict=True)) for chosen in product(*values))


# ---- measuring ----------------------------------------------------------------------------------


def report(source: Any, name: str, shapes: Shapes, grid: Iterator[Sizes], limit: float) -> None:
    start = time.perf_counter()
    free = tw.compile(source, shapes=shapes, threads=1)
    print(f"{name}: compiled once for all sizes in {time.perf_counter() - start:.1f} s", flush=True)
    for sizes in grid:
        known = {n: [sizes.get(d, d) for d in shape] for n, shape in shapes.items()}
        fixed = tw.compile(source, shapes=known, threads=1)
        inputs = _inputs(free, known)
        for a, b in zip(free.run(inputs), fixed.run(inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * (np.abs(b).max() + 1e-6))
        of_free, of_fixed = cpu_seconds(
            [lambda x=inputs: free.run(x), lambda x=inputs, m=fixed: m.run(x)], limit
        )
        size = " ".join(f"{k}={v}" for k, v in sizes.items())
        share = of_fixed / of_free
        times = f"{1e3 * of_free:10.3f}{1e3 * of_fixed:10.3f}"
        print(f"{name:28}{size:>18}{times}{share:8.2f}", flush=True)


def _inputs(model: RunnableModel, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for spec in model.inputs:
        assert isinstance(spec, TensorSpec)
        if spec.dtype.is_float:
            made[spec.name] = _RNG.standard_normal(shapes[spec.name]).astype(spec.numpy)
        else:
            made[spec.name] = _RNG.integers(0, 2, shapes[spec.name]).astype(spec.numpy)
    return made


def cpu_seconds(runs: Sequence[Callable[[], object]], limit: float) -> list[float]:
    """The median of the CPU time of each, in turn, for about `limit` seconds in all."""
    samples: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + limit
    while time.perf_counter() < end or len(samples[0]) < 5:
        for run, taken in zip(runs, samples, strict=True):
            start = time.thread_time()
            run()
            taken.append(time.thread_time() - start)
    return [statistics.median(s) for s in samples]


# ---- models -------------------------------------------------------------------------------------


def _weights(*shape: int) -> Any:
    return (_RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def perceptron() -> Module:
    b = Builder()
    x = b.input("x", "f32", ("n", 784))
    y = b.relu(b.matmul(x, _weights(784, 512)) + _weights(512))
    y = b.relu(b.matmul(y, _weights(512, 512)) + _weights(512))
    b.output(b.matmul(y, _weights(512, 10)) + _weights(10))
    return b.build()


def residual(*spatial: Any) -> Module:
    """A stem with pooling, two blocks, a classifier."""
    b = Builder()
    x = b.input("x", "f32", ("n", 3, *spatial))

    def conv(x: Any, cin: int, cout: int, size: int = 3, stride: int = 1) -> Any:
        w = _weights(cout, cin, size, size) / np.float32(size)
        return b.conv(x, w, strides=[stride] * 2, pads=[size // 2] * 4) + _weights(cout, 1, 1)

    y = b.relu(conv(x, 3, 64, 7, 2))
    y = b.max_pool(y, kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for _ in range(2):
        y = b.relu(conv(b.relu(conv(y, 64, 64)), 64, 64) + y)
    y = b.mean(y, axes=[2, 3], keepdims=False)
    b.output(b.matmul(y, _weights(64, 1000)))
    return b.build()


def encoder(layers: int, width: int) -> Module:
    """Layers with heads of 64."""
    b = Builder()
    x = y = b.input("x", "f32", ("n", "s", width))
    n, s, _ = x.shape

    def heads(v: Any) -> Any:
        return b.transpose(b.reshape(v, shape=[n, s, width // 64, 64]), axes=[0, 2, 1, 3])

    for _ in range(layers):
        q, k, v = (heads(b.matmul(y, _weights(width, width)) + _weights(width)) for _ in range(3))
        scores = b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2])) * np.float32(0.125)
        mixed = b.transpose(b.matmul(b.softmax(scores, axis=-1), v), axes=[0, 2, 1, 3])
        mixed = b.reshape(mixed, shape=[n, s, width])
        y = norm(b, y + b.matmul(mixed, _weights(width, width)) + _weights(width), width)
        inner = b.gelu(b.matmul(y, _weights(width, 4 * width)) + _weights(4 * width))
        y = norm(b, y + b.matmul(inner, _weights(4 * width, width)) + _weights(width), width)
    b.output(y)
    return b.build()


def norm(b: Builder, x: Any, width: int) -> Any:
    return b.layer_norm(x, _weights(width), _weights(width), axis=-1)


IMAGES: Shapes = {"x": ["n", 3, 112, 112]}
MODELS: dict[str, tuple[Callable[[], Module], Shapes, Sequence[str]]] = {
    "perceptron": (perceptron, {"x": ["n", 784]}, ["n=1,2,3,5,7,8,16,100"]),
    "images": (partial(residual, 112, 112), IMAGES, ["n=1,4"]),
    "images of any size": (
        partial(residual, "h", "w"),
        {"x": ["n", 3, "h", "w"]},
        ["n=1", "h=75,112", "w=112"],
    ),
    "encoder": (partial(encoder, 2, 512), {"x": ["n", "s", 512]}, ["n=1,4", "s=7,32,128"]),
    "encoder, 12 layers": (partial(encoder, 12, 768), {"x": ["n", "s", 768]}, ["n=1", "s=7,128"]),
}


if __name__ == "__main__":
    main()
