"""Trained models as people use them: compiled at every level, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tests.models.wheels import model_bytes

ort: Any = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)

Arrays = dict[str, Any]
F32 = np.float32


class Case(NamedTuple):
    package: str
    path: str
    inputs: Callable[[np.random.Generator], Arrays]
    #: Each level has several models; all of them have the highest.
    levels: tuple[int, ...]

    def __str__(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(".onnx")


def sound(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) * 0.1).astype(F32)


def file_contents(rng: np.random.Generator) -> Arrays:
    return {"bytes": rng.integers(0, 257, (2, 2048)).astype(np.int32)}


def speech(rng: np.random.Generator) -> Arrays:
    state = sound(rng, 2, 1, 128)
    return {"input": sound(rng, 1, 576), "state": state, "sr": np.array(16000)}


def speech_in_windows(rng: np.random.Generator) -> Arrays:
    h, c = sound(rng, 1, 1, 128), sound(rng, 1, 1, 128)
    return {"input": sound(rng, 3, 576), "h": h, "c": c}


def waves(rng: np.random.Generator) -> Arrays:
    return {"waveforms": sound(rng, 2, 4000), "waveforms_lens": np.array([4000, 3000])}


def line_of_text(rng: np.random.Generator) -> Arrays:
    return {"x": rng.standard_normal((1, 3, 48, 96)).astype(F32)}


def music(rng: np.random.Generator) -> Arrays:
    return {"serving_default_input_2:0": sound(rng, 1, 43844, 1)}


def repaired_speech(rng: np.random.Generator) -> Arrays:
    return {"degraded_audio": sound(rng, 1, 1, 37, 257), "rater_embed": sound(rng, 1, 64)}


def echo(rng: np.random.Generator) -> Arrays:
    return {"input": sound(rng, 1, 3, 41, 160), "h0": sound(rng, 4, 1, 64)}


CASES = [
    Case("magika", "magika/models/standard_v3_3/model.onnx", file_contents, (0, 1, 2, 3)),
    Case("silero_vad", "silero_vad/data/silero_vad.onnx", speech, (0, 2, 3)),
    Case("silero_vad", "silero_vad/data/silero_vad_16k_sequence.onnx", speech_in_windows, (1, 3)),
    Case("onnx_asr", "onnx_asr/preprocessors/data/kaldi.onnx", waves, (2, 3)),
    Case("onnx_asr", "onnx_asr/preprocessors/data/nemo80.onnx", waves, (0, 1, 3)),
    Case("onnx_asr", "onnx_asr/preprocessors/data/resample_8_16.onnx", waves, (2, 3)),
    Case(
        "rapidocr_onnxruntime",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        line_of_text,
        (3,),
    ),
    Case("basic_pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx", music, (3,)),
    Case("speechmos", "speechmos/plcmos_models/plcmos_v2.onnx", repaired_speech, (1, 3)),
    Case("speechmos", "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx", echo, (1, 3)),
]


@pytest.mark.parametrize(("case", "level"), [(c, n) for c in CASES for n in c.levels], ids=str)
def test_levels_agree_with_the_peer(case: Case, level: int) -> None:
    data = model_bytes(case.package, case.path)
    inputs = case.inputs(np.random.default_rng(0))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    results = tw.compile(data, threads=1, opt_level=level).run(inputs)
    for got, want in zip(results, wanted, strict=True):
        assert_near(np.asarray(got), want)


def assert_near(got: Any, want: Any) -> None:
    """Within a ten-thousandth of the range of the result, as far as float32 can tell: what lies
    close together (probabilities of a half) keeps the rounding of its own size."""
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    size = float(np.abs(want).max(initial=0))
    span = float(np.ptp(want)) if want.size > 1 else size
    near = max(1e-4 * span, 1e-6 * size, 1e-10)
    np.testing.assert_allclose(got, want, rtol=0, atol=near)
