"""GPU models and kernels, compiled here, checked and timed on a machine with a GPU.

    python benchmarks/gpu.py pack FOLDER [--models A,B] [--kernels A,B] [--precision P] [--jobs N]
    python benchmarks/gpu.py run FOLDER [--torch MODE] [--jobs N]
    python benchmarks/gpu.py strip FOLDER [--models A,B]

`strip` writes models without weights, which `pack --skeletons FOLDER` fills again: so they can be
packed where the GPU is.

`pack` needs no GPU: it compiles models to artifacts (for `--arch`, sm_90a unless given) and puts
inputs and the processor's answers beside them, in single precision whatever `--precision` says.
With `float16`, kernels take and give it; with `tf32`, PyTorch may multiply so as well; those named
`…_bytes` multiply bytes by constant bytes in any case. `--without merge_kernels` leaves out that
pass, or another. `run` needs no compiler: it compares answers and times runs by events, beside the
least time that bytes and operations of each kernel take. Where PyTorch is installed, its kernels
are timed as well, call by call and as a CUDA graph; with `--torch` models too (that needs what
`make bench` installs), and those of torch.compile as a graph; the ratio is to the fastest. With
`--jobs`, so many are packed at once; and all are prepared at once, then timed one after another.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from in_turns import in_turns

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

#: The GPU's own figures (H200): bytes a second, and operations, by bytes of an element; and those
#: of float32 with `tf32`.
BANDWIDTH, FLOPS, TF32_FLOPS = 4.4e12, {4: 67e12, 2: 989e12, 1: 1979e12}, 495e12
#: What is printed of each: ours, the least time, and PyTorch's.
TIMES = ("ms", "floor", "eager", "graph", "compiled")
#: How far answers may be off, by precision.
TOLERANCES = {"float32": 2e-3, "tf32": 2e-2, "float16": 2e-2, "bf16": 1e-1}


@dataclass(frozen=True)
class Kernel:
    """An operator on its own: an ONNX graph of it, and the same in PyTorch."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    #: None where PyTorch has no such kernel: then answers are packed.
    torch: str | None
    attrs: dict[str, Any]
    flops: float = 0.0
    #: Elements of the result.
    results: int = 0
    #: Whether it multiplies bytes, by a constant.
    of_bytes: bool = False

    def floor(self, itemsize: int, *, tf32: bool = False) -> float:
        """Milliseconds that memory and arithmetic take at least, on elements of so many bytes."""
        moved = itemsize * (sum(map(math.prod, self.shapes)) + self.results)
        return 1e3 * max(moved / BANDWIDTH, self.flops / (TF32_FLOPS if tf32 else FLOPS[itemsize]))


def product(*size: int) -> Kernel:
    m, k, n = size
    return Kernel("MatMul", ((m, k), (k, n)), "matmul", {}, 2.0 * m * k * n, m * n)


def conv(n: int, c: int, size: int, out: int, window: int) -> Kernel:
    shapes = (n, c, size, size), (out, c, window, window)
    pads = [window // 2] * 4
    flops = 2.0 * n * out * c * size * size * window * window
    return Kernel("Conv", shapes, "conv2d", {"pads": pads}, flops, n * out * size * size)


def byte_product(*size: int) -> Kernel:
    return replace(product(*size), op="MatMulInteger", torch="byte_product", of_bytes=True)


def byte_conv(*size: int) -> Kernel:
    """Quantized before and after, as models are."""
    return replace(conv(*size), torch=None, of_bytes=True)


def attention(tokens: int, depth: int, batch: int = 0) -> Kernel:
    """16,384 tokens of 2,048 channels, unless the batch is given: 768 then."""
    heads = 768 // depth if batch else 2048 // depth
    shape = batch or (1 << 14) // tokens, heads, tokens, depth
    size = math.prod(shape)
    return Kernel("Attention", (shape,) * 3, "attention", {}, 4.0 * size * tokens, size)


KERNELS = {
    "add_8192": Kernel("Add", ((8192, 8192),) * 2, "add", {}, results=1 << 26),
    "softmax_8192": Kernel("Softmax", ((8192, 8192),), "softmax", {"axis": -1}, results=1 << 26),
    "softmax_128": Kernel("Softmax", ((4096, 128),), "softmax", {"axis": -1}, results=1 << 19),
    "transpose_8192": Kernel(
        "Transpose", ((8192, 8192),), "transpose", {"perm": [1, 0]}, results=1 << 26
    ),
    "layer_norm_8192": Kernel(
        "LayerNormalization", ((8192, 8192), (8192,), (8192,)), "layer_norm", {}, results=1 << 26
    ),
    "row_sums_8192": Kernel("ReduceSum", ((8192, 8192),), "sum", {"keepdims": 0}, results=8192),
    "matmul_512": product(512, 512, 512),
    "matmul_1024": product(1024, 1024, 1024),
    "matmul_2048": product(2048, 2048, 2048),
    "matmul_4096": product(4096, 4096, 4096),
    "matmul_8192": product(8192, 8192, 8192),
    "matmul_odd": product(1001, 1003, 999),
    "matmul_odd_large": product(4095, 4093, 4097),
    "matmul_6304_768_3072": product(6304, 768, 3072),
    "matmul_128_768_3072": product(128, 768, 3072),
    "matmul_128_768_768": product(128, 768, 768),
    "matmul_784_1152_128": product(784, 1152, 128),
    **{f"matmul_{m}_4096": product(m, 4096, 4096) for m in (1, 2, 4, 8, 16)},
    **{f"matmul_{m}_11008_4096": product(m, 11008, 4096) for m in (1, 2, 16)},
    **{f"matmul_{m}_2048_8192": product(m, 2048, 8192) for m in (1, 8)},
    **{f"matmul_{n}_bytes": byte_product(n, n, n) for n in (512, 1024, 2048, 4096, 8192)},
    "matmul_6304_768_3072_bytes": byte_product(6304, 768, 3072),
    "conv_64_56_bytes": byte_conv(32, 64, 56, 64, 3),
    "conv_256_14_bytes": byte_conv(32, 256, 14, 256, 3),
    "conv_64_56": conv(1, 64, 56, 64, 3),
    "conv_256_14": conv(1, 256, 14, 256, 3),
    "attention_128_64": attention(128, 64, 32),
    "attention_197_64": attention(197, 64, 32),
    **{f"attention_{n}_{d}": attention(n, d) for n in (512, 1024, 2048, 4096) for d in (64, 128)},
}


# ---- here ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packing:
    """How models are compiled, and where to."""

    folder: Path
    arch: str
    precision: str
    skeletons: Path | None
    batch: int
    #: A pass that is left out, if any.
    without: str


def pack(packing: Packing, names: list[str], jobs: int) -> None:
    packing.folder.mkdir(parents=True, exist_ok=True)
    each = partial(pack_one, packing)
    if jobs == 1:
        for told in map(each, names):
            print(told, flush=True)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(each, name) for name in names]):
            print(done.result(), flush=True)


def pack_one(packing: Packing, name: str) -> str:
    """Compile a model or kernel, and compute its answers; what came of it."""
    import tilewright as tw

    source = model_of(name, packing.precision, packing.skeletons, packing.batch)
    target = f"cuda -arch={packing.arch} -mcpu=x86-64-v3"
    without = {packing.without} - {""}
    try:
        with tw.PassContext(disabled_passes=without):
            model = tw.compile(source, target=target, precision=packing.precision)
    except (tw.UserError, tw.InternalError) as error:
        return f"{name}: {error}"
    model.save(packing.folder / f"{name}.twm")
    if name in KERNELS and KERNELS[name].torch is not None:
        return f"{name}: packed"
    here = tw.compile(source)
    inputs = inputs_of(here)
    answers = here.run(inputs)
    held = {f"in_{k}": v for k, v in inputs.items()}
    held |= {f"out_{k}": np.asarray(v) for k, v in enumerate(answers)}
    np.savez(packing.folder / f"{name}.npz", **held)
    return f"{name}: packed with answers"


def model_of(name: str, precision: str, skeletons: Path | None, batch: int = 1) -> Any:
    if name in KERNELS and KERNELS[name].of_bytes:
        return onnx_of_bytes(KERNELS[name])
    if name in KERNELS:
        return onnx_of(KERNELS[name], "FLOAT16" if precision == "float16" else "FLOAT")
    if skeletons is not None:
        from whole_models.skeletons import filled

        return filled(skeletons / f"{name}.onnx")
    from whole_models.recipes import model_path

    return str(model_path(name, batch))


def strip(folder: Path, models: list[str], batch: int) -> None:
    from whole_models.recipes import model_path
    from whole_models.skeletons import strip

    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        strip(Path(model_path(name, batch)), folder / f"{name}.onnx")


def onnx_of(kernel: Kernel, element: str) -> Any:
    from onnx import TensorProto, helper

    dtype = TensorProto.DataType.Value(element)

    names = [f"x{k}" for k in range(len(kernel.shapes))]
    inputs = [
        helper.make_tensor_value_info(n, dtype, s)
        for n, s in zip(names, kernel.shapes, strict=True)
    ]
    output = helper.make_tensor_value_info("y", dtype, None)
    held, attrs = [], dict(kernel.attrs)
    if kernel.op == "ReduceSum":
        held.append(helper.make_tensor("axes", TensorProto.INT64, [1], [1]))
        names.append("axes")
    node = helper.make_node(kernel.op, names, ["y"], **attrs)
    graph = helper.make_graph([node], "kernel", inputs, [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


def byte_weights(kernel: Kernel) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(-127, 128, kernel.shapes[1], dtype=np.int8)


def onnx_of_bytes(kernel: Kernel) -> Any:
    """A product of bytes by constant bytes, with sums as results; or a convolution between what is
    quantized."""
    from onnx import TensorProto, helper, numpy_helper

    held = {
        "w": byte_weights(kernel),
        "scale": np.array(0.02, np.float32),
        "small": np.array(0.001, np.float32),
        "zero": np.array(0, np.int8),
    }
    is_conv, make = kernel.op == "Conv", helper.make_node
    nodes = [make(kernel.op, ["x", "w"], ["y"])]
    if is_conv:
        nodes = [
            make("DequantizeLinear", ["x", "scale", "zero"], ["image"]),
            make("DequantizeLinear", ["w", "small", "zero"], ["weights"]),
            make("Conv", ["image", "weights"], ["sums"], **kernel.attrs),
            make("QuantizeLinear", ["sums", "scale", "zero"], ["y"]),
        ]
    given = helper.make_tensor_value_info("x", TensorProto.INT8, kernel.shapes[0])
    made = TensorProto.INT8 if is_conv else TensorProto.INT32
    output = helper.make_tensor_value_info("y", made, None)
    kept = [numpy_helper.from_array(v, k) for k, v in held.items() if is_conv or k == "w"]
    graph = helper.make_graph(nodes, "kernel", [given], [output], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


def inputs_of(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Free dimensions are 1, or 128 for tokens, as in `whole_models.runner`."""
    random = np.random.default_rng(0)
    made = {}
    for spec in model.inputs:
        shape = [d if isinstance(d, int) else (128 if k else 1) for k, d in enumerate(spec.shape)]
        if spec.numpy.kind == "f":
            made[spec.name] = random.normal(size=shape).astype(spec.numpy)
        elif spec.numpy == np.int8:
            made[spec.name] = random.integers(-128, 128, shape, dtype=np.int8)
        else:
            made[spec.name] = random.integers(0, 2, shape).astype(spec.numpy)
    return made


# ---- there --------------------------------------------------------------------------------------


def run(folder: Path, only: list[str], torch_mode: str, batch: int, jobs: int) -> int:
    failed, rows = 0, []
    names = [p.stem for p in sorted(folder.glob("*.twm")) if not only or p.stem in only]
    ready = partial(prepared, folder=folder, torch_mode=torch_mode, batch=batch)
    heads = "".join(f" {head:>9}" for head in TIMES)
    print(f"{'name':28}{heads}  ratio  error", flush=True)
    for name, row in in_turns(ready, names) if jobs > 1 else one_by_one(ready, names):
        if isinstance(row, str):
            print(f"{name:28} {row}", flush=True)
            failed += 1
            continue
        rows.append(row)
        times = "".join(f" {row.get(k, math.nan):9.4f}" for k in TIMES)
        ratio = min((row[k] for k in TIMES[2:] if k in row), default=math.nan) / row["ms"]
        print(f"{name:28}{times} {ratio:6.2f}  {row['error']:.1e}", flush=True)
        failed += not row["error"] < row["tolerance"]
        (folder / "results.json").write_text(json.dumps(rows))
    return 1 if failed else 0


def one_by_one(
    ready: Callable[[str], Callable[[], Any]], names: list[str]
) -> Iterator[tuple[str, Any]]:
    """As `in_turns`, in this process."""
    for name in names:
        try:
            yield name, ready(name)()
        except Exception as error:  # the others are still worth knowing
            yield name, f"{type(error).__name__}: {error}"


def prepared(
    name: str, *, folder: Path, torch_mode: str, batch: int
) -> Callable[[], dict[str, Any]]:
    """Check the answers, and prepare all that is timed by what this returns."""
    import tilewright as tw

    path = folder / f"{name}.twm"
    model = tw.load(path)
    kernel, tf32 = KERNELS.get(name), model.precision.startswith("tf32")
    if kernel is None or kernel.torch is None:
        held = np.load(path.with_suffix(".npz"))
        inputs = {k[3:]: held[k] for k in held.files if k.startswith("in_")}
        wanted = [held[f"out_{k}"] for k in range(len(held.files) - len(inputs))]
        mode = torch_mode if kernel is None else ""
        beside = torch_model(name, model.precision, mode, batch) if mode else {}
    else:
        inputs = inputs_of(model)
        wanted, beside = torch_answers(kernel, list(inputs.values()), tf32=tf32)
    made = [np.asarray(a) for a in model.run(inputs)]
    error = float(max(map(difference, made, wanted)))
    itemsize = next(iter(inputs.values())).itemsize
    precision = "float16" if kernel and itemsize == 2 else model.precision.split()[0]
    if kernel is not None:
        floor = kernel.floor(itemsize, tf32=tf32)
    else:
        floor = model_floor(model.profile(inputs, runs=1, warmup=1), precision)
    fixed = {"name": name, "floor": floor, "error": error}

    def timed() -> dict[str, Any]:
        ms = model.time(inputs, repeat=5, min_repeat_ms=20).median * 1e3
        theirs = {way: time() for way, time in beside.items()}
        return {**fixed, "ms": ms, **theirs, "tolerance": TOLERANCES.get(precision, 0.2)}

    return timed


def model_floor(profile: Any, precision: str) -> float:
    """Milliseconds that the memory and arithmetic of all kernels take at least, one by one."""
    wide = {"float32": FLOPS[4], "tf32": TF32_FLOPS}.get(precision, FLOPS[2])
    return sum(1e3 * max(e.bytes / BANDWIDTH, e.flops / wide) for e in profile.events)


def difference(made: Any, wanted: Any) -> float:
    if wanted is None:
        return 0.0
    made, wanted = np.asarray(made, np.float64), np.asarray(wanted, np.float64)
    scale = np.abs(wanted).max(initial=1e-30)
    return float(np.abs(made - wanted).max(initial=0.0) / scale)


def torch_answers(
    kernel: Kernel, arrays: list[Any], *, tf32: bool
) -> tuple[list[Any], dict[str, Callable[[], float]]]:
    """PyTorch's answers, and what times its kernel; with `tf32`, one that may multiply so."""
    try:
        import torch
    except ImportError:
        return [None], {}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    given = [torch.from_numpy(a).cuda() for a in arrays]
    assert kernel.torch is not None
    call = TORCH[kernel.torch](torch, kernel)

    def step() -> Any:
        return call(*given)

    wanted = step().cpu().numpy()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    graph = captured(torch, step)
    return [wanted], {
        "eager": lambda: median_ms(torch, step),
        "graph": lambda: median_ms(torch, graph),
    }


def torch_byte_product(torch: Any, weights: Any) -> Callable[..., Any]:
    """By weights whose columns lie together."""
    columns = torch.from_numpy(weights.T.copy()).cuda().t()
    return lambda x: torch._int_mm(x, columns)


def torch_model(name: str, precision: str, mode: str, batch: int) -> dict[str, Callable[[], float]]:
    """What times PyTorch's runs of a network: call by call, and by graphs of either way."""
    import torch
    from whole_models.torch_gpu import ways

    dtype = "float16" if "float16" in precision else "float32"
    tf32 = precision.startswith("tf32")
    with torch.no_grad():
        made = ways(name, dtype, mode, batch, tf32=tf32)
        graphs = {way: captured(torch, step) for way, step in made.items()}

    @torch.no_grad()
    def eager() -> float:
        return median_ms(torch, made["eager"], 5)

    return {
        "eager": eager,
        "graph": lambda: median_ms(torch, graphs["eager"]),
        "compiled": lambda: median_ms(torch, graphs["compiled"]),
    }


TORCH: dict[str, Callable[[Any, Kernel], Callable[..., Any]]] = {
    "add": lambda torch, _: torch.add,
    "softmax": lambda torch, _: lambda x: torch.softmax(x, -1),
    "layer_norm": lambda torch, _: (
        lambda x, w, b: torch.nn.functional.layer_norm(x, x.shape[1:], w, b)
    ),
    "transpose": lambda torch, _: lambda x: x.t().contiguous(),
    "sum": lambda torch, _: lambda x: x.sum(1),
    "matmul": lambda torch, _: torch.matmul,
    "byte_product": lambda torch, k: torch_byte_product(torch, byte_weights(k)),
    "attention": lambda torch, _: torch.nn.functional.scaled_dot_product_attention,
    "conv2d": lambda torch, k: (
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=k.attrs["pads"][0])
    ),
}


def captured(torch: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """A CUDA graph of a step."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph.replay


def median_ms(torch: Any, call: Callable[[], Any], count: int = 50) -> float:
    """Milliseconds of a call by events, as the median of five rows of so many."""
    times = []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / count)
    return sorted(times)[len(times) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=["pack", "run", "strip"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--skeletons", type=Path)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--without", default="", metavar="PASS")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--torch", default="", choices=["max-autotune", "default"])
    given = parser.parse_args()
    models, kernels = ([n for n in t.split(",") if n] for t in (given.models, given.kernels))
    if given.what == "run":
        return run(given.folder, models, given.torch, given.batch, given.jobs)
    if given.what == "strip":
        strip(given.folder, models, given.batch)
    else:
        options = given.arch, given.precision, given.skeletons, given.batch, given.without
        pack(Packing(given.folder, *options), [*models, *kernels], given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
