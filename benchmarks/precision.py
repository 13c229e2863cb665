"""Whole models in reduced precision, beside float32 and beside what peers offer, in one run.

    python benchmarks/precision.py [MODEL …] [--threads N] [--rounds N] [--json FILE]

MODEL is a name of `whole_models/recipes.py` or a file. All variants lie in one process and take
turns; times are the process's CPU time, medians over the rounds, so that other work on the machine
counts little: with one thread they are times of a run. Errors are of the outputs' range, and by the
root of the mean square, against ONNX Runtime in float32. Peers: ONNX Runtime's dynamically
quantized model, OpenVINO with bfloat16; those that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from whole_models.recipes import make_model
from whole_models.runner import Feeds, Run, example_inputs

import tilewright as tw

DEFAULT = ["mlp", "lstm", "bert_base", "gpt2", "vit_base_patch16_224", "resnet50"]
#: Operators that ONNX Runtime computes in bytes.
QUANTIZED = ["MatMul", "Gemm", "Attention", "LSTM", "Gather", "Conv"]


@dataclass
class Variant:
    """A model in one runtime and precision, and what was measured."""

    name: str
    precision: str
    run: Run = field(repr=False)
    times: list[float] = field(default_factory=list[float])
    greatest_error: float = 0.0
    mean_error: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.times)


# ---- runtimes -----------------------------------------------------------------------------------


def ours(precision: str) -> Callable[[Path, Feeds, int, Path], Variant | None]:
    def made(path: Path, feeds: Feeds, threads: int, folder: Path) -> Variant | None:
        del folder
        model = tw.compile(str(path), threads=threads, precision=precision)
        if precision == "bf16" and "bfloat16" not in model.precision:
            return None  # it is the float32 model: the machine has no such products
        return Variant(f"tilewright {precision}", model.precision, lambda: model.run(feeds))

    return made


def onnxruntime(path: Path, feeds: Feeds, threads: int, folder: Path) -> Variant:
    del folder
    return Variant("onnxruntime float32", "float32", _session(path, feeds, threads))


def onnxruntime_int8(path: Path, feeds: Feeds, threads: int, folder: Path) -> Variant:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    quantized = folder / path.name
    quantize_dynamic(
        path,
        quantized,
        op_types_to_quantize=QUANTIZED,
        per_channel=True,
        weight_type=QuantType.QInt8,
    )
    run = _session(quantized, feeds, threads)
    return Variant("onnxruntime int8-dynamic", "int8-dynamic", run)


def _session(path: Path, feeds: Feeds, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def openvino_bf16(path: Path, feeds: Feeds, threads: int, folder: Path) -> Variant | None:
    del folder
    import openvino as ov

    core = ov.Core()
    if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return None
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "bf16"}
    model = core.compile_model(core.read_model(str(path)), "CPU", settings)
    return Variant("openvino bf16", "bf16", lambda: list(model(feeds).values()))


#: The first gives the answers that the others are compared with.
VARIANTS: list[Callable[[Path, Feeds, int, Path], Variant | None]] = [
    onnxruntime,
    onnxruntime_int8,
    openvino_bf16,
    ours("float32"),
    ours("bf16"),
    ours("int8-dynamic"),
]


# ---- measuring ----------------------------------------------------------------------------------


def measure(path: Path, threads: int, rounds: int) -> list[Variant]:
    feeds = example_inputs(path)
    with tempfile.TemporaryDirectory() as folder:
        made = [_tried(make, path, feeds, threads, Path(folder)) for make in VARIANTS]
        variants = [v for v in made if v is not None]
        answers = variants[0].run()
        for variant in variants:
            _compare(variant, answers)
        for _ in range(rounds):
            for variant in variants:
                start = time.process_time()
                variant.run()
                variant.times.append(time.process_time() - start)
    return variants


def _tried(
    make: Callable[[Path, Feeds, int, Path], Variant | None],
    path: Path,
    feeds: Feeds,
    threads: int,
    folder: Path,
) -> Variant | None:
    try:
        return make(path, feeds, threads, folder)
    except ImportError:
        return None


def _compare(variant: Variant, answers: Sequence[Any]) -> None:
    for got, want in zip(variant.run(), answers, strict=True):
        off = np.abs(got.astype(np.float64) - want)
        scale = max(float(np.abs(want).max()), 1e-30)
        mean = float(np.sqrt(np.mean(off**2) / max(np.mean(want.astype(np.float64) ** 2), 1e-30)))
        variant.greatest_error = max(variant.greatest_error, float(off.max()) / scale)
        variant.mean_error = max(variant.mean_error, mean)


def report(model: str, variants: Sequence[Variant]) -> None:
    base = variants[0].median
    print(f"\n{model}")
    for v in variants:
        print(
            f"  {v.name:26s} {v.median * 1e3:9.2f} ms  {base / v.median:5.2f}x"
            f"  error {v.greatest_error:.4f}, rms {v.mean_error:.4f}  {v.precision}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for name in args.models:
        path = Path(name) if name.endswith(".onnx") else make_model(name)
        variants = measure(path, args.threads, args.rounds)
        report(path.stem, variants)
        found[path.stem] = [{k: x for k, x in vars(v).items() if k != "run"} for v in variants]
    if args.json:
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
