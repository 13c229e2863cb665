"""Large models from ONNX files: long chains of operators, and gigabytes of weights.

python benchmarks/scale.py [--nodes 10000] [--gigabytes 3]

Every row is measured in a process of its own, with an empty kernel cache: seconds from the file to
native code, and the peak of memory in all. We aim at 60 s and 2 GB for 10,000 operators, and at
1 GB beyond the weights themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_WIDTH = 4096
_MEASURE = """
import json, resource, sys, time
import numpy as np
import tilewright as tw
start = time.perf_counter()
model = tw.compile(sys.argv[1])
taken = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
spec = model.inputs[0]
model.run([np.zeros([d if isinstance(d, int) else 1 for d in spec.shape], spec.numpy)])
print(json.dumps([taken, time.process_time(), peak, len(model.kernels)]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    options = parser.parse_args()
    print(f"{'model':32}{'seconds':>9}{'CPU s':>9}{'peak GB':>9}{'kernels':>9}")
    for name, steps in CHAINS.items():
        report(f"{options.nodes} nodes, {name}", lambda p, s=steps: chain(p, s, options.nodes))
    if options.gigabytes:
        report(f"{options.gigabytes:g} GB of weights", lambda p: wide(p, options.gigabytes))


def report(name: str, write: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        write(path)
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": f"{folder}/cache"}
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, str(path)],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    taken, cpu, peak, kernels = json.loads(done.stdout)
    print(f"{name:32}{taken:9.1f}{cpu:9.1f}{peak:9.2f}{kernels:9}", flush=True)


# ---- chains -------------------------------------------------------------------------------------

Step = tuple[str, list[str], dict[str, Any]]

#: What follows what; `c` is a number, `w` a matrix, `x` the input of all.
CHAINS: dict[str, list[Step]] = {
    "maps and products": [
        ("Tanh", [], {}),
        ("Add", ["x"], {}),
        ("Mul", ["c"], {}),
        ("MatMul", ["w"], {}),
        ("Sigmoid", [], {}),
    ],
    "nothing to fuse": [
        ("Softmax", [], {"axis": 1}),
        ("MatMul", ["w"], {}),
        ("CumSum", ["axis"], {}),
        ("Transpose", [], {"perm": [1, 0]}),
    ],
}


def chain(path: Path, steps: list[Step], nodes: int) -> None:
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    constants = {
        "c": np.float32(0.77),
        "w": (rng.standard_normal((16, 16)) / 4).astype(np.float32),
        "axis": np.int64(1),
    }
    made: list[Any] = []
    last = "x"
    for k in range(nodes):
        kind, others, attributes = steps[k % len(steps)]
        made.append(helper.make_node(kind, [last, *others], [f"v{k}"], **attributes))
        last = f"v{k}"
    kind = onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(n, kind, [16, 16]) for n in ("x", last)]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:], tensors)
    onnx.save(_model(graph), path)


# ---- weights ------------------------------------------------------------------------------------


def wide(path: Path, gigabytes: float) -> None:
    """Products with large matrices that lie in a file beside the model."""
    import onnx
    from onnx import helper

    layers = max(1, round(gigabytes * 2**30 / (4 * _WIDTH * _WIDTH)))
    block = np.random.default_rng(0).standard_normal(_WIDTH * _WIDTH).astype(np.float32)
    nodes: list[Any] = []
    tensors: list[Any] = []
    with (path.parent / "weights.bin").open("wb") as file:
        for k in range(layers):
            tensors.append(_external(f"w{k}", file.tell(), block.nbytes))
            np.roll(block, 1 + k).tofile(file)
            nodes.append(helper.make_node("MatMul", [f"v{k}", f"w{k}"], [f"v{k + 1}"]))
    kind = onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(n, kind, [1, _WIDTH]) for n in ("v0", f"v{layers}")]
    onnx.save(_model(helper.make_graph(nodes, "wide", ends[:1], ends[1:], tensors)), path)


def _external(name: str, offset: int, length: int) -> Any:
    import onnx

    tensor = onnx.TensorProto(name=name, dims=[_WIDTH, _WIDTH])
    tensor.data_type = onnx.TensorProto.FLOAT
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _model(graph: Any) -> Any:
    from onnx import helper

    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    main()
