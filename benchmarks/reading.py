"""Front ends alone: a long chain of nodes, and a gigabyte of weights, in files of every format.

python benchmarks/reading.py [--nodes 10000] [--gigabytes 1] [--formats A,B]

Every row is measured in a process of its own: CPU seconds from the file to a graph, and by how much
the process grew, in MB: its own memory, and pages of the file that it looked at. We aim at 2 s for
10,000 nodes, and at no copies of weights.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tilewright.frontends import operators_of, read_model
from tilewright.runtime.arrays import return_free_memory

Files = tuple[Path, dict[str, Any]]
_WIDTH: Final = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--file", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.file:
        folder, path, options = given.file
        print(json.dumps(reading(folder, Path(path), json.loads(options))))
        return
    layers = round(given.gigabytes * 2**30 / (4 * _WIDTH * _WIDTH))
    chain: list[Any] = [_small(k) for k in range(given.nodes)]
    wide: list[Any] = [_block(k) for k in range(layers)]
    print(f"{'model':32}{'CPU s':>9}{'own MB':>9}{'file MB':>9}{'nodes':>9}")
    for name in given.formats.split(","):
        folder, needed, write = FORMATS[name]
        if find_spec(needed) is None:
            print(f"{name:32} without {needed}")
            continue
        for what, steps in ((f"{given.nodes} nodes", chain), (f"{layers} matrices", wide)):
            if steps:
                report(f"{name}, {what}", folder, lambda p, s=steps, w=write: w(p, s))


def report(name: str, folder: str, write: Callable[[Path], Files]) -> None:
    with tempfile.TemporaryDirectory() as place:
        taken, own, file, nodes = measured(folder, *write(Path(place)))
    print(f"{name:32}{taken:9.2f}{own:9.0f}{file:9.0f}{nodes:9}", flush=True)


def measured(folder: str, path: Path, options: dict[str, Any]) -> tuple[float, float, float, int]:
    """What reading a file takes, in a process of its own."""
    words = [sys.executable, "-W", "ignore", __file__]
    words += ["--file", folder, str(path), json.dumps(options)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    taken, own, file, nodes = json.loads(done.stdout)
    return taken, own, file, nodes


def reading(folder: str, path: Path, options: dict[str, Any]) -> tuple[float, float, float, int]:
    """What reading a file takes: CPU seconds, growth by memory of its own and by pages of the
    file, in MB; and how many nodes there are."""
    operators_of(folder)
    if folder == "torch":
        import_module("torch._export.serde.serialize")
    # Memory that was used before and is free would hide what is taken.
    gc.collect()
    return_free_memory()
    before, start = memory(), time.process_time()
    module = read_model(str(path), **options)
    taken = time.process_time() - start
    own, file = (now - then for now, then in zip(memory(), before, strict=True))
    return taken, own, file, len(module.main.body)


def memory() -> list[float]:
    """The memory of this process, in MB: its own, and pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return [int(n.split()[1]) / 1024 for n in lines if n.startswith(("RssAnon", "RssFile"))]


# ---- steps --------------------------------------------------------------------------------------

#: An activation by its name, or a matrix to multiply with.
Step = str | np.ndarray[Any, Any]
_SMALL: Final = np.eye(16, dtype=np.float32)


def _small(number: int) -> Step:
    return ("tanh", "sigmoid", "relu", _SMALL)[number % 4]


def _block(number: int) -> Step:
    return np.full((_WIDTH, _WIDTH), 1.0 / (number + 1), np.float32)


def _size(steps: list[Step]) -> int:
    return next(len(s) for s in steps if not isinstance(s, str))


# ---- formats ------------------------------------------------------------------------------------


def onnx(place: Path, steps: list[Step]) -> Files:
    package: Any = import_module("onnx")
    helper, numpy_helper = package.helper, package.numpy_helper
    kinds = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu"}
    nodes, weights = list[Any](), dict[int, Any]()
    for k, step in enumerate(steps):
        if isinstance(step, str):
            nodes.append(helper.make_node(kinds[step], [f"v{k}"], [f"v{k + 1}"]))
            continue
        weights.setdefault(id(step), numpy_helper.from_array(step, f"w{k}"))
        nodes.append(helper.make_node("MatMul", [f"v{k}", weights[id(step)].name], [f"v{k + 1}"]))
    shape = [1, _size(steps)]
    ends = [helper.make_tensor_value_info(n, 1, shape) for n in ("v0", f"v{len(steps)}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], list(weights.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    package.save(model, place / "model.onnx")
    return place / "model.onnx", {}


def graph_def(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.tensorflow.files import const, frozen, node, placeholder

    kinds = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu"}
    nodes, weights = [placeholder("v0", 1, _size(steps))], dict[int, str]()
    for k, step in enumerate(steps):
        if isinstance(step, str):
            nodes.append(node(kinds[step], f"v{k + 1}", f"v{k}"))
            continue
        if id(step) not in weights:
            weights[id(step)] = f"w{k}"
            nodes.append(const(f"w{k}", step))
        nodes.append(node("MatMul", f"v{k + 1}", f"v{k}", weights[id(step)]))
    (place / "model.pb").write_bytes(frozen(*nodes))
    return place / "model.pb", {}


def saved_model(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.tensorflow import files as made

    kinds = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu"}
    nodes, variables = [made.placeholder("v0", 1, _size(steps))], dict[str, Any]()
    for k, step in enumerate(steps):
        if isinstance(step, str):
            nodes.append(made.node(kinds[step], f"v{k + 1}", f"v{k}"))
            continue
        variables[f"w{k}"] = step
        nodes.append(made.node("VarHandleOp", f"w{k}", shared_name=f"w{k}"))
        nodes.append(made.node("ReadVariableOp", f"r{k}", f"w{k}"))
        nodes.append(made.node("MatMul", f"v{k + 1}", f"v{k}", f"r{k}"))
    ends = {"x": made.info("v0:0", 1, _size(steps))}, {"y": f"v{len(steps)}:0"}
    return made.saved_model(place / "saved", made.graph(*nodes), *ends, variables), {}


def tflite(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.tflite.writer import Writer

    kinds = {"tanh": "TANH", "sigmoid": "LOGISTIC", "relu": "RELU"}
    w, weights = Writer(), dict[int, int]()
    shape = [1, _size(steps)]
    x = w.input("float32", shape)
    for step in steps:
        if isinstance(step, str):
            x = w.op(kinds[step], [x], w.tensor("float32", shape))
            continue
        if id(step) not in weights:
            weights[id(step)] = w.constant(step)
        x = w.op("FULLY_CONNECTED", [x, weights[id(step)]], w.tensor("float32", shape))
    (place / "model.tflite").write_bytes(w.model([x]))
    return place / "model.tflite", {}


def keras(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.keras.files import archive, functional, input_layer, layer

    size, layers, weights = _size(steps), list[Any](), dict[str, Any]()
    layers.append(input_layer("v0", size))
    for k, step in enumerate(steps):
        if isinstance(step, str):
            layers.append(layer("Activation", f"v{k + 1}", f"v{k}", activation=step))
            continue
        layers.append(layer("Dense", f"v{k + 1}", f"v{k}", units=size, use_bias=False))
        weights["layers/dense" + (f"_{len(weights)}" if weights else "")] = [step]
    model = functional(layers, ["v0"], [f"v{len(steps)}"])
    (place / "model.keras").write_bytes(archive(model, weights))
    return place / "model.keras", {}


def keras_hdf5(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.keras.files import hdf5, layer, sequential

    size, weights = _size(steps), dict[str, dict[str, Any]]()
    layers: list[Any] = [
        layer("Activation", "v0", activation="linear", batch_input_shape=[1, size])
    ]
    for k, step in enumerate(steps, 1):
        if isinstance(step, str):
            layers.append(layer("Activation", f"v{k}", activation=step))
            continue
        layers.append(layer("Dense", f"v{k}", units=size, use_bias=False))
        weights[f"v{k}"] = {f"v{k}/kernel:0": step}
    (place / "model.h5").write_bytes(hdf5(sequential(*layers), weights))
    return place / "model.h5", {}


def darknet(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.darknet.networks import Numbers, Section, cfg_text

    size, sections, numbers = _size(steps), list[Section](), Numbers(0)
    kinds = {"tanh": "tanh", "sigmoid": "logistic", "relu": "relu"}
    for step in steps:
        if isinstance(step, str):
            sections.append(("activation", {"activation": kinds[step]}))
            continue
        sections.append(("connected", {"output": size, "activation": "linear"}))
        numbers.parts += [np.zeros(size, np.float32).tobytes(), step.tobytes()]
    text = cfg_text(sections, 1, 1, channels=size).encode()
    return _two_files(place, text, numbers.data(), {})


def mxnet(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.mxnet.networks import Net

    net, size = Net(), _size(steps)
    x = net.var("x")
    for k, step in enumerate(steps):
        if isinstance(step, str):
            x = net.node(step, x)
        else:
            x = net.node("FullyConnected", x, net.var(f"w{k}", step), num_hidden=size, no_bias=True)
    return _two_files(place, *net.files(x), {"x": [1, size]})


def caffe(place: Path, steps: list[Step]) -> Files:
    from tests.frontends.caffe.networks import Net

    size = _size(steps)
    net = Net(1, size)
    kinds = {"tanh": "TanH", "sigmoid": "Sigmoid", "relu": "ReLU"}
    param = f"inner_product_param {{ num_output: {size} bias_term: false }}"
    for step in steps:
        if isinstance(step, str):
            net.layer(kinds[step])
        else:
            net.layer("InnerProduct", param, blobs=[step])
    return _two_files(place, *net.files(), {})


def _two_files(place: Path, text: bytes, weights: bytes, shapes: dict[str, Any]) -> Files:
    (place / "model.txt").write_bytes(text)
    (place / "model.weights").write_bytes(weights)
    return place / "model.txt", {"params": str(place / "model.weights"), "shapes": shapes}


def torch(place: Path, steps: list[Step]) -> Files:
    package: Any = import_module("torch")
    nn, size = package.nn, _size(steps)
    kinds = {"tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "relu": nn.ReLU()}
    products: dict[int, Any] = {}
    layers: list[Any] = []
    for step in steps:
        if isinstance(step, str):
            layers.append(kinds[step])
            continue
        if id(step) not in products:
            products[id(step)] = nn.Linear(size, size, bias=False)
            products[id(step)].weight = nn.Parameter(package.from_numpy(step))
        layers.append(products[id(step)])
    program = package.export.export(nn.Sequential(*layers), (package.zeros(1, size),))
    package.export.save(program, place / "model.pt2")
    return place / "model.pt2", {}


#: The folder of each format's front end, a package that writing its files needs, and what does.
FORMATS: Final[dict[str, tuple[str, str, Callable[[Path, list[Step]], Files]]]] = {
    "onnx": ("onnx", "onnx", onnx),
    "graph_def": ("tensorflow", "numpy", graph_def),
    "saved_model": ("tensorflow", "numpy", saved_model),
    "tflite": ("tflite", "numpy", tflite),
    "keras": ("keras", "h5py", keras),
    "keras_hdf5": ("keras", "h5py", keras_hdf5),
    "mxnet": ("mxnet", "numpy", mxnet),
    "caffe": ("caffe", "numpy", caffe),
    "darknet": ("darknet", "numpy", darknet),
    "torch": ("torch", "torch", torch),
}

if __name__ == "__main__":
    main()
