"""Tuning for a GPU in bundles: built here, measured where the GPU is, compared there.

    python benchmarks/gpu_tuning.py bundle FOLDER --models A,B [--skeletons S] [--trials 24]
    python benchmarks/gpu_tuning.py measure FOLDER [--budget 8m]
    python benchmarks/gpu_tuning.py pack FOLDER --models A,B [--skeletons S]
    python benchmarks/gpu_tuning.py compare FOLDER
    python benchmarks/gpu_tuning.py ship FOLDER

`bundle` writes NAME.zip, candidates of each kernel, with no weights, and NAME.plain.twm, the model
by its default schedules. `measure` needs the GPU and no compiler: it adds to records.jsonl, and
goes on where it was; winners are timed inside the model. `pack` compiles each model with these
records; `compare` needs the GPU again: both are run in turns, and the geometric mean of the gains
is the last line. `ship` puts winners among the records that come with the package. Models are
those of `benchmarks/gpu.py` (whose `strip` writes skeletons, models without weights), its kernels,
or ONNX files. With `--target simt` all of it runs without a GPU, by the executor, for models that
are tiny.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from gpu import inputs_of, model_of

RECORDS = "records.jsonl"
#: How often each of two models is timed.
ROUNDS = 11


def source_of(name: str, options: argparse.Namespace) -> Any:
    if name.endswith(".onnx"):
        return name
    return model_of(name, options.precision, options.skeletons)


def bundle(options: argparse.Namespace) -> None:
    import tilewright as tw

    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        path = options.folder / f"{Path(name).stem}.zip"
        summary = tw.tune.bundle(
            source_of(name, options),
            options.target,
            path,
            trials=options.trials,
            budget=options.budget or "30m",
            precision=options.precision,
            records=[p for p in [options.folder / RECORDS] if p.exists()],
        )
        print(summary, flush=True)
        save(name, options, "plain")


def measure(options: argparse.Namespace) -> None:
    import tilewright as tw

    def told(outcome: Any) -> None:
        failed = ", ".join(f"{n} {why}" for why, n in outcome.failures.items())
        took = f"{1e6 * outcome.seconds:9.1f} µs × {outcome.calls:<3}"
        note = outcome.error or failed
        print(f"  {outcome.name[:44]:44} {took} ×{1 / outcome.ratio:.3f} {note}", flush=True)

    for path in sorted(options.folder.glob("*.zip")):
        print(path.stem, flush=True)
        records, model = options.folder / RECORDS, tw.load(path.with_suffix(".plain.twm"))
        found = tw.tune.measure(
            path,
            records,
            model=model,
            inputs=inputs_of(model),
            budget=options.budget,
            on_result=told,
        )
        before = sum(o.seconds * o.calls for o in found)
        after = sum(o.seconds * o.calls * o.ratio for o in found)
        trials = sum(o.trials for o in found)
        gain = before / after if after else 1.0
        print(f"{path.stem:28} {trials} trials, kernels ×{gain:.3f}", flush=True)


def pack(options: argparse.Namespace) -> None:
    import tilewright as tw

    for name in options.models:
        with tw.tune.apply_best(options.folder / RECORDS):
            save(name, options, "tuned")
        print(f"{name}: packed", flush=True)


def save(name: str, options: argparse.Namespace, kind: str) -> None:
    """Compile a model by what the context says, and by no records that come with the package."""
    import tilewright as tw
    from tilewright.graph import PassContext

    with PassContext(options={"shipped_records": False}):
        model = tw.compile(source_of(name, options), options.target, precision=options.precision)
    model.save(options.folder / f"{Path(name).stem}.{kind}.twm")


def ship(options: argparse.Namespace) -> None:
    import tilewright as tw

    for path in tw.tune.add_shipped(tw.tune.read_records(options.folder / RECORDS)):
        print(path)


def compare(options: argparse.Namespace) -> None:
    import tilewright as tw

    gains: list[float] = []
    for path in sorted(options.folder.glob("*.tuned.twm")):
        name = path.name.removesuffix(".tuned.twm")
        models = {k: tw.load(options.folder / f"{name}.{k}.twm") for k in ("plain", "tuned")}
        inputs = inputs_of(models["plain"])
        answers = [models[k].run(inputs) for k in models]
        error = max(map(difference, *answers))
        times: dict[str, list[float]] = {k: [] for k in models}
        for _ in range(ROUNDS):
            for kind, model in models.items():
                times[kind].append(model.time(inputs, repeat=1, min_repeat_ms=20).median)
        pairs = zip(times["plain"], times["tuned"], strict=True)
        gains.append(statistics.median(a / b for a, b in pairs))
        ms = "  ".join(f"{k} {1e3 * statistics.median(t):8.4f} ms" for k, t in times.items())
        print(f"{name:28} {ms}  ×{gains[-1]:.3f}  differs by {error:.1e}", flush=True)
    if gains:
        print(f"geometric mean of {len(gains)}: ×{statistics.geometric_mean(gains):.3f}")


def difference(made: Any, wanted: Any) -> float:
    made, wanted = (np.asarray(a, np.float64) for a in (made, wanted))
    scale = np.abs(wanted).max(initial=1e-30)
    return float(np.abs(made - wanted).max(initial=0.0) / scale)


STEPS = {f.__name__: f for f in (bundle, measure, pack, compare, ship)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","), default=[])
    parser.add_argument("--skeletons", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--budget", help="time for each bundle, to build it or to measure it")
    parser.add_argument("--target", default="cuda -arch=sm_90a -mcpu=x86-64-v3")
    options = parser.parse_args()
    STEPS[options.step](options)


if __name__ == "__main__":
    main()
