"""Every kernel of the benchmark models beside the time that a model of the machine foretells.

    python benchmarks/model_kernels.py [MODEL | MODEL.onnx …] [--threads 1] [--level 3] [--rows 5]
                                       [--runs 10] [--picture FILE.svg]

The machine is measured first: operations per second, bytes per second of each level of memory, and
what sharing work among threads costs (`tilewright.insight`). For each model come the sums over its
kernels, then those with the largest gaps between measured and foretold: the gap says where work
pays. All kernels are drawn under the roof. Those above it do less than their loops say: products
with the zeros of Winograd's transforms are counted, but not computed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from models import make
from whole_models.recipes import RECIPES, model_path
from whole_models.roofline import Point, roofline_picture
from whole_models.runner import example_inputs

import tilewright as tw
from tilewright.insight.predict import Prediction, predictions
from tilewright.insight.roof import Roof, measure_roof


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=list(RECIPES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--picture", type=Path, default=Path("build/roofline.svg"))
    return parser.parse_args()


def file_of(name: str) -> Path | None:
    """A model file; one of the benchmark models is made where there is none, if it can be."""
    if name not in RECIPES:
        return Path(name)
    return model_path(name) if make(name, 1) else None


def foretold(path: Path, options: argparse.Namespace, roofs: Sequence[Roof]) -> list[Prediction]:
    with tw.PassContext(opt_level=options.level):
        model = tw.compile(str(path), threads=options.threads)
    profile = model.profile(example_inputs(path), runs=options.runs)
    return predictions(profile, roofs)


def describe(roof: Roof, threads: int) -> str:
    rates = [
        f"{level.rate / 1e9:.0f} GB/s up to {level.capacity / 1e6:.0f} MB"
        for level in roof.levels[:-1]
    ]
    return (
        f"{threads} thread{'s' if threads > 1 else ''}: {roof.flops / 1e9:.1f} GFLOP/s, "
        f"{', '.join(rates)}, {roof.memory / 1e9:.0f} GB/s beyond; "
        f"fork and join {roof.fork_join * 1e6:.1f} µs"
    )


def table(name: str, rows: Sequence[Prediction], shown: int) -> list[str]:
    measured, predicted = sum(r.measured for r in rows), sum(r.predicted for r in rows)
    lines = [
        _line(f"{name} ({len(rows)} kernels)", sum(r.calls for r in rows), measured, predicted)
    ]
    for r in rows[:shown]:
        rates = f"{r.flops / r.measured / 1e9:9.1f}{r.bytes / r.measured / 1e9:8.1f}"
        lines.append(_line("  " + r.name, r.calls, r.measured, r.predicted) + rates)
    return lines


def _line(name: str, calls: int, measured: float, predicted: float) -> str:
    times = f"{1e3 * measured:>12.3f}{1e3 * predicted:>12.3f}{predicted / measured:>8.0%}"
    return f"{name[:60]:<62}{calls:>6}{times}"


def main() -> None:
    options = arguments()
    counts = sorted({1, options.threads})
    roofs = [measure_roof(count) for count in counts]
    for roof, count in zip(roofs, counts, strict=True):
        print(describe(roof, count))
    header = f"{'model, and its widest gaps':<62}{'calls':>6}{'measured ms':>12}{'foretold ms':>12}"
    print(f"{header}{'of it':>8}{'GFLOP/s':>9}{'GB/s':>8}")
    points: list[Point] = []
    for name in options.models:
        path = file_of(name)
        if path is None:
            continue
        rows = foretold(path, options, roofs)
        print("\n".join(table(Path(name).stem, rows, options.rows)), flush=True)
        whole = sum(r.measured for r in rows)
        points += [
            Point(Path(name).stem, r.name, r.flops, r.bytes, r.measured, r.measured / whole)
            for r in rows
        ]
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(roofline_picture(points, roofs[-1]))
    print(options.picture)


if __name__ == "__main__":
    main()
