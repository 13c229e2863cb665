"""MXNet's own answers: run by a Python that has it (`python peer.py FOLDER`), it writes symbols,
parameters, inputs and outputs of all cases into a folder, which `test_beside_mxnet.py` reads."""

# pyright: basic

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import peer_cases
import zoo

zoo.stand_in("graphviz requests")


def main(folder: Path) -> None:
    mx: Any = import_module("mxnet")

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name, (symbol, given) in peer_cases.operators(mx.sym).items():
        inputs = {
            k: rng.standard_normal(v) if isinstance(v, tuple) else v for k, v in given.items()
        }
        inputs = {k: v if v.dtype == np.int32 else v.astype(np.float32) for k, v in inputs.items()}
        write(mx, folder, name, symbol, inputs, rng)
    zoo.write_all(mx, folder, rng)


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
    main(Path(sys.argv[1]))
