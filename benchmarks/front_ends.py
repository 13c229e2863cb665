"""Models of PyTorch and TFLite beside the runtimes that their users have, in one run.

    python benchmarks/front_ends.py [--torch A,B] [--tflite A,B] [--threads 2] [--rounds N]
                                    [--seconds S] [--json FILE]

Networks of PyTorch: `torch.compile(backend="tilewright")` beside Inductor with freezing. TFLite
models, out of all wheels in build/wheels, or files that are named: beside LiteRT, which computes
with XNNPACK. `first` is how long the first call took, compiling and all, in seconds. All else is
measured and printed as `models.py` does it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from models import Row, as_json, heading, installed, line, measure, summary
from whole_models.recipes import SEGMENTATION

WHEELS = Path("build/wheels")
NETWORKS = [
    "resnet50",
    "mobilenetv2_100",
    "bert_base",
    "vit_base_patch16_224",
    "gpt2",
    "swin_tiny_patch4_window7_224",
    "convnext_tiny",
    *SEGMENTATION,
]
TORCH = ["torch.tilewright", "torch.inductor"]
TFLITE = ["tilewright", "litert"]
#: The package of a runtime whose name is another.
PACKAGES = {"litert": "ai_edge_litert"}


def tflite_files(named: list[str], folder: Path) -> Iterator[Path]:
    """Files that are named, or those in wheels, written to a folder; one by each name."""
    if named:
        yield from map(Path, named)
        return
    for wheel in sorted(WHEELS.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(n for n in archive.namelist() if n.endswith(".tflite")):
                path = folder / Path(name).name
                path.write_bytes(archive.read(name))
                yield path


def compared(models: Iterator[Path], runtimes: list[str], options: argparse.Namespace) -> list[Row]:
    """Measure models, and print a line for each."""
    here = installed(runtimes, PACKAGES)
    print(f"{heading(here)}  first", flush=True)
    rows: list[Row] = []
    for model in models:
        row = measure(model, options.threads, 1, here, options.rounds, options.seconds)
        first = ", ".join(f"{r.load:.1f}" for r in row.runners.values())
        print(f"{line(row, here)}  {first}", flush=True)
        rows.append(row)
    print(summary(rows), flush=True)
    return rows


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch", default=",".join(NETWORKS), help="networks; none if empty")
    parser.add_argument("--tflite", default="wheels", help="files; none if empty")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", type=Path, default=Path("build/front_ends.json"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    rows: list[Row] = []
    if options.torch:
        networks = (Path(f"{name}.torch") for name in names(options.torch))
        rows += compared(networks, TORCH, options)
    if options.tflite:
        with tempfile.TemporaryDirectory() as folder:
            named = [] if options.tflite == "wheels" else names(options.tflite)
            rows += compared(tflite_files(named, Path(folder)), TFLITE, options)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([as_json(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
