"""One model in one runtime, in a process of its own; `models.py` and `front_ends.py` drive it.

    python -P benchmarks/whole_models/runner.py RUNTIME MODEL THREADS OUTPUTS.npz

MODEL is an ONNX or TFLite file, or NAME.torch: a network of `recipes.py` as torch has it.

Says on standard output, as JSON, how loading went, and writes the model's answers to a file. Then,
for each number of seconds on standard input, it runs the model for so long and says how long each
run took.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray[Any, Any]]
Run = Callable[[], Sequence[Any]]


def example_inputs(path: Path) -> Feeds:
    """The same inputs in every process; networks of torch bring their own."""
    makers = {".onnx": _onnx_inputs, ".tflite": _tflite_inputs}
    return makers[path.suffix](path) if path.suffix in makers else {}


def _onnx_inputs(path: Path) -> Feeds:
    """Free dimensions are 1, or 128 for tokens."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {w.name for w in graph.initializer}
    chance = np.random.default_rng(0)
    return {i.name: _example(i, chance) for i in graph.input if i.name not in weights}


def _example(info: Any, chance: np.random.Generator) -> np.ndarray[Any, Any]:
    import onnx

    tensor = info.type.tensor_type
    free = [1] + [128] * len(tensor.shape.dim)
    shape = [d.dim_value or free[k] for k, d in enumerate(tensor.shape.dim)]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.floating):
        return chance.standard_normal(shape).astype(dtype)
    return chance.integers(0, 2 if "mask" in info.name else 1000, shape).astype(dtype)


def _tflite_inputs(path: Path) -> Feeds:
    """Free dimensions are 1; variables begin as the file has them."""
    from tilewright.frontends.tflite import first_states, from_tflite

    states = first_states(path)
    chance = np.random.default_rng(0)
    feeds: Feeds = {}
    for value in from_tflite(path).main.params:
        shape = [int(d.value) if hasattr(d, "value") else 1 for d in value.shape]
        dtype = value.dtype.numpy
        is_real = np.issubdtype(dtype, np.floating)
        made = chance.random(shape) if is_real else chance.integers(0, 100, shape)
        feeds[value.name] = states.get(value.name, made.astype(dtype))
    return feeds


# ---- runtimes -----------------------------------------------------------------------------------


def tilewright(path: Path, feeds: Feeds, threads: int) -> Run:
    import tilewright as tw

    model = tw.compile(str(path), threads=threads)
    return lambda: model.run(feeds)


def onnxruntime(path: Path, feeds: Feeds, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def openvino(path: Path, feeds: Feeds, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = core.compile_model(core.read_model(str(path)), "CPU", settings)
    request = model.create_infer_request()
    inputs = [feeds[i.get_any_name()] for i in model.inputs]

    def run() -> Sequence[Any]:
        request.infer(inputs, share_inputs=True)
        return [request.get_output_tensor(k).data for k in range(len(model.outputs))]

    return run


def torch_compile(path: Path, feeds: Feeds, threads: int) -> Run:
    import torch

    sys.path.append(str(Path(__file__).parent))
    from recipes import RECIPES

    torch.set_num_threads(threads)
    name, _, batch = path.stem.partition("_batch")
    network = torch.compile(RECIPES[name](int(batch or 1)).network.eval())
    inputs = [torch.from_numpy(x) for x in feeds.values()]

    def run() -> Sequence[Any]:
        with torch.no_grad():
            return [network(*inputs).numpy()]

    return run


def _compiled_by(backend: str, options: dict[str, Any]) -> Callable[[Path, Feeds, int], Run]:
    """torch.compile with a back end; `options` are Inductor's settings."""

    def start(path: Path, feeds: Feeds, threads: int) -> Run:
        import torch

        sys.path.append(str(Path(__file__).parent))
        from recipes import ALL_RECIPES

        torch.set_num_threads(threads)
        recipe = ALL_RECIPES[path.stem](1)
        given = {"threads": threads} if backend == "tilewright" else options
        network = torch.compile(recipe.network.eval(), backend=backend, options=given)
        inputs = list(recipe.inputs.values())

        def run() -> Sequence[Any]:
            with torch.no_grad():
                return [network(*inputs).numpy()]

        return run

    return start


def litert(path: Path, feeds: Feeds, threads: int) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    model = Interpreter(model_path=str(path), num_threads=threads)
    given = list(feeds.values())
    # Variables are inside of the interpreter; they are the last inputs here.
    pairs = list(zip(model.get_input_details(), given, strict=False))
    for detail, x in pairs:
        if tuple(detail["shape"]) != x.shape:
            model.resize_tensor_input(detail["index"], x.shape)
    model.allocate_tensors()

    def run() -> Sequence[Any]:
        for detail, x in pairs:
            model.set_tensor(detail["index"], x)
        model.invoke()
        return [model.get_tensor(d["index"]) for d in model.get_output_details()]

    return run


def tvm(path: Path, feeds: Feeds, threads: int) -> Run:
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(x.shape) for name, x in feeds.items()}
    module = from_onnx(onnx.load(str(path)), keep_params_in_input=False, shape_dict=shapes)
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    inputs = [tvm.runtime.tensor(x) for x in feeds.values()]

    def run() -> Sequence[Any]:
        made = machine["main"](*inputs)
        return [made.numpy()] if hasattr(made, "numpy") else [m.numpy() for m in made]

    return run


RUNTIMES: dict[str, Callable[[Path, Feeds, int], Run]] = {
    "tilewright": tilewright,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch.compile": torch_compile,
    "tvm": tvm,
    "torch.tilewright": _compiled_by("tilewright", {}),
    "torch.inductor": _compiled_by("inductor", {"freezing": True}),
    "litert": litert,
}


# ---- the process --------------------------------------------------------------------------------


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def timed_runs(run: Run, seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    runtime, path, threads, answers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    # What a runtime prints goes to the other stream: this one speaks JSON.
    speak = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    feeds = example_inputs(path)
    start = time.perf_counter()
    run = RUNTIMES[runtime](path, feeds, threads)
    outputs = run()
    loaded = time.perf_counter() - start
    np.savez(answers, *[np.asarray(y) for y in outputs])
    print(json.dumps({"load": loaded}), file=speak)
    for line in sys.stdin:
        times = timed_runs(run, float(line))
        print(json.dumps({"times": times, "resident": resident()}), file=speak)


if __name__ == "__main__":
    main()
