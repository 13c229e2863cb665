"""Whole models in bytes beside ONNX Runtime's and OpenVINO's, calibrated with the same samples.

    python benchmarks/quantization.py [MODEL …] [--threads N] [--rounds N] [--samples N]

MODEL is a name of `whole_models/recipes.py` or a file. All variants lie in one process and take
turns. Ratios are over ONNX Runtime's static quantization (QDQ, scales by output, min–max); errors
are signal over noise at the outputs, in decibels, against float32, on samples that nobody
calibrated with. OpenVINO runs the file that ONNX Runtime's tool wrote, and ours. Weights of these
models are random: accuracy is a matter of tests/quantize, where networks are trained.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from whole_models.recipes import make_model
from whole_models.runner import Feeds, example_inputs

import tilewright as tw
from tilewright.insight.errors import ErrorMeter

DEFAULT = [
    *("resnet50", "mobilenetv2_100", "efficientnet_b0"),
    *("bert_base", "vit_base_patch16_224", "yolo_like"),
]
#: What a float32 run of ours, and the peer that ratios are over, are called.
FLOAT, PEER = "tilewright float32", "onnxruntime int8"

Run = Callable[[Feeds], Sequence[Any]]


@dataclass
class Variant:
    """A model in one runtime, and what was measured."""

    name: str
    run: Run = field(repr=False)
    times: list[float] = field(default_factory=list[float])
    sqnr: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.times)


@dataclass
class Job:
    """A model, the samples, and where files go."""

    path: Path
    calibration: list[Feeds]
    held_out: list[Feeds]
    threads: int
    folder: Path

    def file(self, name: str) -> Path:
        return self.folder / f"{self.path.stem}.{name}.onnx"


# ---- runtimes -----------------------------------------------------------------------------------


def variants_of(job: Job) -> Iterator[Variant]:
    """All variants that can be made here, float32 first."""
    float32 = tw.compile(str(job.path), threads=job.threads)
    yield Variant(FLOAT, float32.run)
    quantized = tw.quantize(str(job.path), job.calibration)
    print(f"  {quantized.report.summary}", flush=True)
    model = tw.compile(quantized, threads=job.threads)
    yield Variant("tilewright int8", model.run)
    quantized.save(job.file("ours"))
    _quantize_by_onnxruntime(job)
    yield Variant(PEER, _session(job.file("onnxruntime"), job.threads))
    yield Variant("onnxruntime int8, our file", _session(job.file("ours"), job.threads))
    try:
        for name, file in ((" of onnxruntime's", "onnxruntime"), (", our file", "ours")):
            yield Variant(f"openvino int8{name}", _openvino(job.file(file), job.threads))
    except ImportError:
        print("  openvino is not installed")


def _quantize_by_onnxruntime(job: Job) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.getLogger().setLevel(logging.ERROR)

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(job.calibration)

        def get_next(self) -> Any:
            return next(self._left, None)

    prepared = job.file("prepared")
    quant_pre_process(str(job.path), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(job.file("onnxruntime")),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
    )


def _session(path: Path, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def _openvino(path: Path, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = core.compile_model(core.read_model(str(path)), "CPU", settings)
    return lambda feeds: list(model(feeds).values())


# ---- measuring ----------------------------------------------------------------------------------


def measure(job: Job, rounds: int) -> list[Variant]:
    variants = list(variants_of(job))
    for variant in variants:
        variant.sqnr = _sqnr(variant.run, variants[0].run, job.held_out)
    feeds = job.held_out[0]
    for _ in range(rounds):
        for variant in variants:
            start = time.perf_counter()
            variant.run(feeds)
            variant.times.append(time.perf_counter() - start)
    return variants


def _sqnr(run: Run, wanted: Run, samples: Sequence[Feeds]) -> float:
    meters: list[ErrorMeter] = []
    for feeds in samples:
        want = wanted(feeds)
        meters = meters or [ErrorMeter() for _ in want]
        for meter, x, y in zip(meters, run(feeds), want, strict=True):
            meter.add(x, y)
    return min(m.sqnr for m in meters)


def samples_of(path: Path, count: int) -> list[Feeds]:
    """Random samples of the shapes and types that the model takes."""
    rng, made = np.random.default_rng(0), list[Feeds]()
    for _ in range(count):
        feeds = example_inputs(path)
        made.append({k: _shuffled(v, rng) for k, v in feeds.items()})
    return made


def _shuffled(array: Any, rng: np.random.Generator) -> Any:
    if array.dtype.kind == "f":
        return rng.standard_normal(array.shape).astype(array.dtype)
    return rng.permutation(array.ravel()).reshape(array.shape)


def report(variants: Sequence[Variant]) -> None:
    times = {v.name: v.median for v in variants}
    for v in variants:
        ratio, own = times[PEER] / v.median, times[FLOAT] / v.median
        print(
            f"  {v.name:32s} {v.median * 1e3:9.2f} ms  {ratio:5.2f}x of {PEER}"
            f"  {own:5.2f}x of our float32  {v.sqnr:6.1f} dB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for name in args.models:
        path = Path(name) if name.endswith(".onnx") else make_model(name)
        samples = samples_of(path, args.samples + 4)
        print(f"\n{path.stem}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            job = Job(path, samples[:-4], samples[-4:], args.threads, Path(folder))
            variants = measure(job, args.rounds)
        report(variants)
        found[path.stem] = [{k: x for k, x in vars(v).items() if k != "run"} for v in variants]
    if args.json:
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
