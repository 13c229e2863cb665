"""What tuning must hold, measure by measure.

    python benchmarks/tuning.py [MEASURE …] [--budget 10m] [--trials 100] [--seeds 3] [--models …]

    models     whole models tuned for `budget`, beside the same untuned, in turns
    sketches   plain loops with the rules switched off, beside the default schedules
    figures    a target with wrong figures on purpose (caches halved, ports doubled, other vectors),
               untuned and tuned, beside the right one untuned
    guided     the best after `trials` by gbt, ga and annealing, beside random
    transfer   trials until a search is as fast as one of a similar shape was, with its records
    killed     searches killed at random moments: measurements lost at most, and made twice
    applying   compile time with records, beside without
    remote     trials per minute here, on one remote device and on two, all on this machine

`stand_in.py` compares tuners on a model of a processor in place of this machine.
All are medians over `seeds`. Ratios are of runs in turns; nothing else should run beside them.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interleaved import interleaved
from whole_models.recipes import model_path
from whole_models.runner import example_inputs

import tilewright as tw
from tilewright import te
from tilewright.runtime import Measured
from tilewright.tune.measuring.local import LocalMeasurer

MODELS = ("resnet50", "mobilenetv2_100", "swin_tiny_patch4_window7_224", "bert_base")


# ---- kernels ------------------------------------------------------------------------------------


def matmul(m: int, n: int, k: int) -> tw.Function:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis(k, name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return te.function([a, b], [c], name=f"matmul_{m}_{n}_{k}")


def conv2d(channels: int, filters: int, size: int) -> tw.Function:
    x = te.placeholder((1, channels, size + 2, size + 2), name="x")
    w = te.placeholder((filters, channels, 3, 3), name="w")
    c, p, q = (te.reduce_axis(e, name=n) for e, n in ((channels, "c"), (3, "p"), (3, "q")))
    y = te.compute(
        (1, filters, size, size),
        lambda n, f, i, j: te.sum(x[n, c, i + p, j + q] * w[f, c, p, q], axis=[c, p, q]),
        name="y",
    )
    return te.function([x, w], [y], name=f"conv2d_{channels}_{filters}_{size}")


def depthwise(channels: int, size: int) -> tw.Function:
    x = te.placeholder((1, channels, size + 2, size + 2), name="x")
    w = te.placeholder((channels, 3, 3), name="w")
    p, q = (te.reduce_axis(3, name=n) for n in "pq")
    y = te.compute(
        (1, channels, size, size),
        lambda n, f, i, j: te.sum(x[n, f, i + p, j + q] * w[f, p, q], axis=[p, q]),
        name="y",
    )
    return te.function([x, w], [y], name=f"depthwise_{channels}_{size}")


def softmax(rows: int, columns: int) -> tw.Function:
    x = te.placeholder((rows, columns), name="x")
    k, r = (te.reduce_axis(columns, name=n) for n in "kr")
    m = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="m")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - m[i]), name="e")
    s = te.compute((rows,), lambda i: te.sum(e[i, r], axis=r), name="s")
    y = te.compute((rows, columns), lambda i, j: e[i, j] / s[i], name="y")
    return te.function([x], [y], name=f"softmax_{rows}_{columns}")


KERNELS = (matmul(256, 256, 256), conv2d(64, 64, 28), depthwise(96, 56), softmax(128, 1000))
MORE = (*KERNELS, matmul(64, 768, 768), conv2d(128, 128, 14))


def run_of(module: Any) -> Callable[[], None]:
    import numpy as np

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) for p in module.signature.params]
    return module.native.prepared(*arrays)


def best_so_far(path: Path) -> list[float]:
    """The least ratio after each trial."""
    best, found = 1.0, list[float]()
    for record in tw.tune.read_records(path):
        if record.kind == "trial":
            best = min(best, record.ratio or best)
            found.append(best)
    return found


# ---- measures -----------------------------------------------------------------------------------


def models(options: argparse.Namespace, folder: Path) -> None:
    for name in options.models:
        path = model_path(name)
        feeds = example_inputs(path)
        gains: list[float] = []
        for seed in range(options.seeds):
            records = folder / f"{name}_{seed}.jsonl"
            summary = tw.tune(
                str(path), budget=options.budget, records=records, seed=seed, inputs=feeds
            )
            gains.append(_gain(path, feeds, records))
            print(f"  {name} seed {seed}: ×{gains[-1]:.3f}; {summary.headline}", flush=True)
        print(f"{name:40} ×{statistics.median(gains):.3f} of untuned", flush=True)


def _gain(path: Path, feeds: Any, records: Path | list[Path], target: str = "llvm") -> float:
    """Times of the untuned model in those of the one that records and a target give."""
    plain = tw.compile(str(path))
    with tw.tune.apply_best(records):
        tuned = tw.compile(str(path), target)
    found = interleaved(
        {"plain": lambda: plain.run(feeds), "tuned": lambda: tuned.run(feeds)}, 21, 50.0
    )
    return found["plain"].median / found["tuned"].median


def sketches(options: argparse.Namespace, folder: Path) -> None:
    for f in KERNELS:
        speeds: list[float] = []
        for seed in range(options.seeds):
            records, found = folder / f"{f.name}_{seed}.jsonl", tw.tune.automatic()
            found.tune(f, budget="1h", trials=200, records=records, seed=seed)
            runs = {"rules": tw.build(f), "search": tw.build(found.best(f, records))}
            times = interleaved({n: run_of(m) for n, m in runs.items()}, 25)
            speeds.append(times["rules"].median / times["search"].median)
        print(f"{f.name:40} {statistics.median(speeds):.2f} of the default's speed", flush=True)


def figures(options: argparse.Namespace, folder: Path) -> None:
    wrong = described_wrongly(tw.Target.of("llvm"))
    for name in options.models:
        path = model_path(name)
        feeds = example_inputs(path)
        speeds: list[float] = []
        for seed in range(options.seeds):
            records = folder / f"wrong_{name}_{seed}.jsonl"
            tw.tune(
                str(path), wrong, budget=options.budget, records=records, seed=seed, inputs=feeds
            )
            speeds.append(_gain(path, feeds, records, wrong))
        untuned, tuned = _gain(path, feeds, [], wrong), statistics.median(speeds)
        print(f"{name:40} {untuned:.3f} untuned, {tuned:.3f} tuned, of right figures", flush=True)


def described_wrongly(target: tw.Target) -> str:
    """The target with half of its caches, twice its ports and, if it has them, other vectors."""
    l1d, l2, l3, _ = target.caches
    sizes = " ".join(f"-{n}={s // 2}" for n, s in (("l1d", l1d), ("l2", l2), ("l3", l3)) if s)
    other = target.with_vectors(target.vector_widths[-1])
    return f"{other} {sizes} -fma-ports={2 * target.fma_ports}"


def guided(options: argparse.Namespace, folder: Path) -> None:
    for f in MORE:
        row: dict[str, float] = {}
        for tuner in ("random", "annealing", "ga", "gbt"):
            found: list[float] = []
            for seed in range(options.seeds):
                path = folder / f"{f.name}_{tuner}_{seed}.jsonl"
                tw.tune.automatic().tune(
                    f, budget="1h", trials=options.trials, tuner=tuner, records=path, seed=seed
                )
                found.append(best_so_far(path)[-1])
            row[tuner] = statistics.median(found)
        cells = "  ".join(f"{tuner} {ratio:.3f}" for tuner, ratio in row.items())
        print(f"{f.name:40} {cells}", flush=True)


def transfer(options: argparse.Namespace, folder: Path) -> None:
    pairs = (
        (matmul(256, 256, 256), matmul(320, 256, 192)),
        (conv2d(64, 64, 28), conv2d(96, 64, 20)),
    )
    for first, other in pairs:
        saved: list[float] = []
        for seed in range(options.seeds):
            paths = [
                folder / f"{other.name}_{seed}_{kind}.jsonl" for kind in ("own", "first", "with")
            ]
            run: dict[str, Any] = {"budget": "1h", "trials": options.trials, "seed": seed}
            tw.tune.automatic().tune(other, records=paths[0], **run)
            tw.tune.automatic().tune(first, records=paths[1], **run)
            tw.tune.automatic().tune(other, records=paths[2], transfer=[paths[1]], **run)
            goal = 1.02 * best_so_far(paths[0])[-1]
            needed = [_until(best_so_far(paths[k]), goal) for k in (0, 2)]
            saved.append(needed[1] / needed[0])
        name = f"{first.name} → {other.name}"
        print(f"{name:48} {statistics.median(saved):.2f} of the trials", flush=True)


def _until(ratios: list[float], goal: float) -> int:
    return next((k for k, r in enumerate(ratios, 1) if r <= goal), len(ratios) + 1)


def killed(options: argparse.Namespace, folder: Path) -> None:
    """One search, killed again and again. What was measured is counted beside the records: of each
    run all must be there but the last, which was under way."""
    records, log, rng = folder / "killed.jsonl", folder / "killed.log", random.Random(0)
    script = (
        "import sys; sys.path.insert(0, sys.argv[3]); import tuning; "
        "tuning.counted_search(sys.argv[1], sys.argv[2])"
    )
    command = [sys.executable, "-c", script, str(records), str(log), str(Path(__file__).parent)]
    most, before, counted = 0, 0, 0
    for _ in range(options.kills):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while process.poll() is None and _size(log) <= counted:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 4))
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = tw.tune.read_records(records)
        most = max(most, _size(log) - counted - (len(found) - before))
        before, counted = len(found), _size(log)
    trials = [(r.task, str(r.sample)) for r in found if r.kind == "trial"]
    twice = len(trials) - len(set(trials))
    print(
        f"{options.kills} kills: {before} measurements in records, at most {most} lost by a kill,"
        f" {twice} made twice",
        flush=True,
    )
    assert most <= 1 and not twice


class CountedMeasurer(LocalMeasurer):
    """Measures here, and leaves a byte in a file for every measurement that is done."""

    log: int = -1

    def measure(
        self, candidates: Iterable[bytes], rounds: int, *, early: bool = True
    ) -> Iterator[tuple[int, Measured]]:
        for outcome in super().measure(candidates, rounds, early=early):
            os.write(self.log, b".")
            yield outcome


def counted_search(records: str, log: str) -> None:
    """A search that goes on for long."""
    measurer = CountedMeasurer()
    measurer.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    found = tw.tune.automatic()
    found.tune(MORE[-1], records=records, budget="1h", tuner="random", measurer=measurer)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def applying(options: argparse.Namespace, folder: Path) -> None:
    path = model_path(options.models[0])
    records = folder / "applied.jsonl"
    tw.tune(str(path), budget=options.budget, records=records, inputs=example_inputs(path))
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(5):
        for name, taken in seconds.items():
            start = time.perf_counter()
            with tw.tune.apply_best([records] if name == "with" else []):
                tw.compile(str(path))
            taken.append(time.perf_counter() - start)
    cells = ", ".join(f"{statistics.median(t):.2f} s {name}" for name, t in seconds.items())
    print(f"compiling {path.stem} from the cache: {cells}", flush=True)


def remote(options: argparse.Namespace, folder: Path) -> None:
    """Of a kernel whose candidates take longer to build than to measure, and of one that is the
    other way round, as on devices that are slower than the machine that builds."""
    for rows, side in ((128, 512), (512, 2048)):
        print(f"{rows} x {side} x {side}", flush=True)
        _remote(_product(rows, side), options, folder / f"remote{side}")


def _product(rows: int, side: int) -> Any:
    import numpy as np

    from tilewright.graph import Builder

    b, rng = Builder(), np.random.default_rng(0)
    x = b.input("x", "f32", (rows, side))
    b.output(b.relu(b.matmul(x, rng.standard_normal((side, side)).astype(np.float32))))
    return b.build()


def _remote(graph: Any, options: argparse.Namespace, folder: Path) -> None:
    folder.mkdir()
    key = folder / "k"
    tw.rpc.write_key(key)
    with _rpc(key, "tracker", "--port", "0") as address:
        tracker = tw.rpc.connect(address, key)
        _rate("here", graph, folder, options)
        with _rpc(key, "server", "--tracker", address, "--name", "one"):
            _rate("one device", graph, folder, options, tracker.pool("one"))
        named = ("server", "--tracker", address, "--name", "two")
        with _rpc(key, *named), _rpc(key, *named):
            _rate("two devices", graph, folder, options, tracker.pool("two"))


def _rate(name: str, graph: Any, folder: Path, options: argparse.Namespace, on: Any = None) -> None:
    """Trials per minute of the same search, without what comes before the first."""
    while on is not None and on.size < (2 if name.startswith("two") else 1):
        time.sleep(0.1)
    records = folder / f"{name}.jsonl"
    tw.tune(
        graph, on=on, budget="1h", trials=options.trials, tuner="random", records=records, threads=1
    )
    at = [r.at for r in tw.tune.read_records(records) if r.kind == "trial"]
    print(f"{name:16} {60 * (len(at) - 1) / (at[-1] - at[0]):7.1f} trials per minute", flush=True)


@contextmanager
def _rpc(key: Path, *words: str) -> Iterator[str]:
    """A server or a tracker on this machine; where it listens."""
    command = [sys.executable, "-m", "tilewright", "rpc", *words, "--key-file", str(key)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()


MEASURES = {
    f.__name__: f for f in (models, sketches, figures, guided, transfer, killed, applying, remote)
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.measures or MEASURES:
            print(f"== {name}", flush=True)
            MEASURES[name](options, Path(folder))


if __name__ == "__main__":
    main()
