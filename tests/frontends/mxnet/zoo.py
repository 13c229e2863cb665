"""Networks from published definitions (Gluon's own, and GluonCV's) with random weights. Only the
Python that has MXNet builds them; the tests need their names."""

# pyright: basic

from __future__ import annotations

import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

#: Classifiers, by their sizes of images.
CLASSIFIERS = {
    "resnet18_v1": 64,
    "resnet18_v2": 64,
    "mobilenet0.25": 64,
    "mobilenetv2_0.25": 64,
    "squeezenet1.1": 224,
    "densenet121": 224,
    "inceptionv3": 299,
}
DETECTORS = {"ssd_512_mobilenet1.0_voc": 256, "yolo3_mobilenet1.0_voc": 96}
WORDS = "words"
NETWORKS = (*CLASSIFIERS, *DETECTORS, WORDS)


class _Absent(types.ModuleType):
    """Stands for what packages import and networks do not need."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(name)


def stand_in(names: str) -> None:
    for name in names.split():
        try:
            import_module(name)
        except ImportError:
            sys.modules[name] = _Absent(name)


def write_all(mx: Any, folder: Path, rng: Any) -> None:
    """Symbols, weights, inputs and outputs of all networks."""
    for name, size in CLASSIFIERS.items():
        net = mx.gluon.model_zoo.vision.get_model(name, classes=10)
        _write(mx, folder, name, net, rng.random((1, 3, size, size), dtype=np.float32))
    stand_in(
        "tqdm matplotlib matplotlib.pyplot PIL PIL.Image portalocker yacs yacs.config scipy "
        "scipy.io cv2 pandas autocfg autogluon yaml tensorboardx decord packaging packaging.version"
    )
    models = import_module("gluoncv").model_zoo
    for name, size in DETECTORS.items():
        net = models.get_model(name, pretrained=False, pretrained_base=False)
        _write(mx, folder, name, net, rng.random((1, 3, size, size), dtype=np.float32))
    given = rng.integers(0, 30, (7, 3)).astype(np.float32)
    _write(mx, folder, WORDS, _words(mx), given)


def _words(mx: Any) -> Any:
    """A language model: embedding, two layers of LSTM, and a dense layer."""
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    lstm = mx.gluon.rnn.LSTM(16, num_layers=2, bidirectional=True)
    net.add(nn.Embedding(30, 12), lstm, nn.LayerNorm(), nn.Dense(30, flatten=False))
    return net


def _write(mx: Any, folder: Path, name: str, net: Any, given: Any) -> None:
    class Weights(mx.init.Xavier):
        def _init_weight(self, name: Any, arr: Any) -> None:
            # The factors of some normalisations are called like weights.
            if arr.ndim < 2:
                arr[:] = 1
            else:
                super()._init_weight(name, arr)

    net.initialize(Weights())
    net.hybridize()
    made = net(mx.nd.array(given))
    outputs = made if isinstance(made, list | tuple) else [made]
    net.export(str(folder / f"zoo_{name}"))
    named = {f"_{k}": o.asnumpy() for k, o in enumerate(outputs)}
    np.savez(folder / f"zoo_{name}.npz", data=given, **named)
