"""MXNet's own answers: run by a Python that has it (`python peer.py FOLDER`), it writes symbols,
parameters, inputs and outputs of all cases into a folder, which `test_beside_mxnet.py` reads."""

# pyright: basic

from __future__ import annotations

import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import peer_cases

for _name in ("graphviz", "requests"):
    sys.modules.setdefault(_name, types.ModuleType(_name))

ZOO = {
    "resnet18_v1": 64,
    "resnet18_v2": 64,
    "mobilenet0.25": 64,
    "mobilenetv2_0.25": 64,
    "squeezenet1.1": 224,
    "densenet121": 224,
    "inceptionv3": 299,
}


def main(folder: Path, zoo: bool) -> None:
    mx: Any = import_module("mxnet")

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name, (symbol, given) in peer_cases.operators(mx.sym).items():
        inputs = {
            k: rng.standard_normal(v) if isinstance(v, tuple) else v for k, v in given.items()
        }
        inputs = {k: v if v.dtype == np.int32 else v.astype(np.float32) for k, v in inputs.items()}
        write(mx, folder, name, symbol, inputs, rng)
    for name, size in ZOO.items() if zoo else ():
        net = mx.gluon.model_zoo.vision.get_model(name, classes=10)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        image = rng.random((1, 3, size, size), dtype=np.float32)
        wanted = net(mx.nd.array(image)).asnumpy()
        net.export(str(folder / f"zoo_{name}"))
        np.savez(folder / f"zoo_{name}.npz", data=image, _0=wanted)
    if zoo:
        words(mx, folder, rng)


def words(mx: Any, folder: Path, rng: Any) -> None:
    """A language model: embedding, two layers of LSTM, and a dense layer."""
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    lstm = mx.gluon.rnn.LSTM(16, num_layers=2, bidirectional=True)
    net.add(nn.Embedding(30, 12), lstm, nn.LayerNorm(), nn.Dense(30, flatten=False))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    given = rng.integers(0, 30, (7, 3)).astype(np.float32)
    wanted = net(mx.nd.array(given)).asnumpy()
    net.export(str(folder / "zoo_words"))
    np.savez(folder / "zoo_words.npz", data=given, _0=wanted)


def write(mx: Any, folder: Path, name: str, symbol: Any, inputs: Any, rng: Any) -> None:
    arrays, aux_shapes = {k: v.shape for k, v in inputs.items()}, []
    if set(symbol.list_arguments()) != set(inputs):
        shapes, _, aux_shapes = symbol.infer_shape(**arrays)
        arrays = dict(zip(symbol.list_arguments(), shapes, strict=True))
    args = {
        k: mx.nd.array(
            inputs[k] if k in inputs else rng.standard_normal(s) * 0.5,
            dtype=inputs[k].dtype if k in inputs else "float32",
        )
        for k, s in arrays.items()
    }
    names = symbol.list_auxiliary_states()
    aux = {k: mx.nd.array(rng.uniform(0.5, 1.5, s)) for k, s in zip(names, aux_shapes, strict=True)}
    outputs = symbol.bind(mx.cpu(), args, aux_states=aux, grad_req="null").forward(is_train=False)
    symbol.save(str(folder / f"{name}-symbol.json"))
    known = {f"arg:{k}": v for k, v in args.items() if k not in inputs and "label" not in k}
    mx.nd.save(
        str(folder / f"{name}-0000.params"), {**known, **{f"aux:{k}": v for k, v in aux.items()}}
    )
    np.savez(
        folder / f"{name}.npz", **inputs, **{f"_{k}": o.asnumpy() for k, o in enumerate(outputs)}
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), zoo="--zoo" in sys.argv)
