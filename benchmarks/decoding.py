"""A language model one token at a time, with weights of four bits, beside ONNX Runtime.

    python benchmarks/decoding.py [--size large] [--threads N] [--past N] [--rounds N] [--group N]

The decoder is that of `examples/language_model.py`: `large` has 1.1 billion weights, which are
random. A step reads all of them once, so that no step takes less than their bytes take to come from
memory; how fast they come is measured by sums over an array of 256 MB, with as many threads. ONNX
Runtime runs the same graph by its MatMulNBits.

Each runtime loads its file in a process of its own, and in each round both take steps for half a
second, one after the other. Times are the least of a round, of which the median over the rounds.
`MB` is what the process holds beyond a process that has loaded nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
from language_model import SIZES, Config, decoder, random_weights, shapes  # noqa: E402

FOLDER = Path("build/models")
RUNTIMES = ("tilewright", "onnxruntime")
#: Seconds of steps in a round.
SLICE = 0.5

Array = np.ndarray[Any, Any]
Step = Callable[[], Array]


def main() -> None:
    options = arguments()
    if options.worker:
        work(options)
        return
    files = files_of(options)
    if options.build:
        build(options, files)
        return
    if not all(f.exists() for f in files.values()):
        # In a process of its own, whose memory is given back.
        subprocess.run([sys.executable, *sys.argv, "--build"], check=True)
    config = SIZES[options.size]
    rate = read_rate(options.threads)
    weights, cache = bytes_of_weights(config, options.group), bytes_of_cache(config)
    floor = weights / rate
    print(
        f"{weights / 1e6:.0f} MB of weights are read for a token, {rate / 1e9:.1f} GB/s: ", end=""
    )
    print(f"{floor * 1e3:.1f} ms at least, {1 / floor:.1f} tokens a second at most", flush=True)
    workers = {name: Worker(name, file, options) for name, file in files.items()}
    for _ in range(options.rounds):
        for worker in workers.values():
            worker.run()
    ours = workers[RUNTIMES[0]]
    held = weights + embedding_bytes(config) + cache
    heading = "ms", "tokens/s", "of floor", "over ours", "MB", "of weights and cache"
    print(" " * 14 + "".join(f"{h:>{max(10, len(h) + 2)}}" for h in heading))
    for name, worker in workers.items():
        seconds = statistics.median(worker.times)
        ratio = statistics.median(t / o for t, o in zip(worker.times, ours.times, strict=True))
        print(
            f"{name:14s}{seconds * 1e3:>10.1f}{1 / seconds:>10.1f}{floor / seconds:>10.0%}"
            f"{ratio:>11.2f}{worker.resident / 1e6:>10.0f}{worker.resident / held:>22.2f}"
        )
    apart = max(np.abs(w.logits - ours.logits).max() for w in workers.values())
    print(f"logits are at most {apart / np.abs(ours.logits).max():.0e} of the greatest apart")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=tuple(SIZES), default="large")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--past", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--build", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- the model ----------------------------------------------------------------------------------


def files_of(options: argparse.Namespace) -> dict[str, Path]:
    """What each runtime loads."""
    stem = FOLDER / f"decoder_{options.size}_int4_{options.group}"
    return dict(zip(RUNTIMES, (stem.with_suffix(".twm"), stem.with_suffix(".onnx")), strict=True))


def build(options: argparse.Namespace, files: dict[str, Path]) -> None:
    import tilewright as tw

    config = SIZES[options.size]
    module = decoder(config, random_weights(config))
    quantized = tw.quantize(module, weights="int4", group=options.group)
    del module
    FOLDER.mkdir(parents=True, exist_ok=True)
    quantized.save(files["onnxruntime"])
    tw.compile(quantized, shapes={"tokens": (1,)}).save(files["tilewright"])


def bytes_of_weights(config: Config, group: int) -> float:
    """Of what a step reads: four bits for each weight, and a scale for each group of them."""
    matrices = [s for n, s in shapes(config).items() if len(s) > 1 and n != "embedding"]
    return sum(k * n * (0.5 + 4 / group) for k, n in matrices)


def embedding_bytes(config: Config) -> int:
    return config.vocabulary * config.width * 4


def bytes_of_cache(config: Config) -> int:
    return config.layers * 2 * config.longest * config.groups * config.depth * 4


def read_rate(threads: int) -> float:
    """Bytes per second that sums over an array take from memory."""
    import tilewright as tw
    from tilewright import te

    rows, columns = 4096, 1 << 14
    x, k = te.placeholder((rows, columns), name="x"), te.reduce_axis(columns)
    y = te.compute((rows,), lambda i: te.sum(x[i, k], k), name="y")
    module = tw.build(te.function([x], [y], name="sums"), f"llvm -num-cores={threads}")
    array, sums = np.ones((rows, columns), np.float32), np.empty(rows, np.float32)
    return array.nbytes / min(_seconds(lambda: module(array, sums)) for _ in range(12))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# ---- processes ----------------------------------------------------------------------------------


class Worker:
    """A runtime in a process of its own, and what it has told."""

    def __init__(self, name: str, file: Path, options: argparse.Namespace) -> None:
        chosen = [f"--{k}={getattr(options, k)}" for k in ("size", "threads", "past")]
        self._process = subprocess.Popen(
            [sys.executable, __file__, f"--worker={name}", f"--file={file}", *chosen],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.times: list[float] = []
        self.logits = np.array(self._heard()["logits"])
        self.resident = 0

    def run(self) -> None:
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        heard = self._heard()
        self.times.append(heard["least"])
        self.resident = heard["resident"]

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def work(options: argparse.Namespace) -> None:
    """What a worker does: load, then take steps for each line of its input."""
    before = resident()
    config = SIZES[options.size]
    step = STEPS[options.worker](options.file, config, options)
    print(json.dumps({"logits": step().ravel().tolist()}), flush=True)
    for _ in sys.stdin:
        least, end = np.inf, time.perf_counter() + SLICE
        while time.perf_counter() < end:
            least = min(least, _seconds(step))
        print(json.dumps({"least": least, "resident": resident() - before}), flush=True)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def inputs(config: Config, past: int) -> tuple[dict[str, Array], Array]:
    """A token and what was kept of those before it; the arrays that hold it."""
    chance = np.random.default_rng(0)
    sizes = (config.layers, 2, config.longest, config.groups, config.depth)
    cache = np.zeros(sizes, np.float32)
    cache[:, :, :past] = chance.standard_normal(cache[:, :, :past].shape, np.float32)
    feeds: dict[str, Array] = {"tokens": np.array([7], np.int64)}
    return feeds | _named(cache, "{}{}", slice(0, past)), cache


def _named(cache: Array, name: str, part: slice) -> dict[str, Array]:
    kinds = enumerate(("keys", "values"))
    return {name.format(k, n): cache[n, i, part] for i, k in kinds for n in range(len(cache))}


def _tilewright(file: Path, config: Config, options: argparse.Namespace) -> Step:
    import tilewright as tw

    model = tw.load(file, threads=options.threads)
    feeds, cache = inputs(config, options.past)
    logits = np.empty((1, config.vocabulary), np.float32)
    out = {"logits": logits} | _named(cache, "new_{}{}", slice(options.past, options.past + 1))

    def step() -> Array:
        model.run(feeds, out=out)
        return logits

    return step


def _onnxruntime(file: Path, config: Config, options: argparse.Namespace) -> Step:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(str(file), settings, ["CPUExecutionProvider"])
    feeds, _ = inputs(config, options.past)
    return lambda: session.run(None, feeds)[0]


STEPS = {"tilewright": _tilewright, "onnxruntime": _onnxruntime}


if __name__ == "__main__":
    main()
