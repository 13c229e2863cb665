"""GPU models and kernels, compiled here, checked and timed on a machine with a GPU.

    python benchmarks/gpu.py pack FOLDER [--models A,B] [--kernels A,B] [--precision P]
    python benchmarks/gpu.py run FOLDER [--torch MODE]
    python benchmarks/gpu.py strip FOLDER [--models A,B]

`strip` writes models without weights, which `pack --skeletons FOLDER` fills again: so they can be
packed where the GPU is.

`pack` needs no GPU: it compiles models to artifacts (for `--arch`, sm_90a unless given) and puts
inputs and the processor's answers beside them, in single precision whatever `--precision` says.
With `float16`, kernels take and give it; with `tf32`, PyTorch may multiply so as well; those named
`…_bytes` multiply bytes by constant bytes in any case. `run` needs no compiler: it compares answers
and times runs by events, beside the least time that bytes and operations of each kernel take. Where
PyTorch is installed, its kernels are timed as well, each as a CUDA graph; with `--torch` models too
(that needs what `make bench` installs), eager and by torch.compile, whichever is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

#: The GPU's own figures (H200): bytes a second, and operations, by bytes of an element; and those
#: of float32 with `tf32`.
BANDWIDTH, FLOPS, TF32_FLOPS = 4.4e12, {4: 67e12, 2: 989e12, 1: 1979e12}, 495e12
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
    "row_sums_8192": Kernel("ReduceSum", ((8192, 8192),), "sum", {"keepdims": 0}, results=8192),
    "matmul_512": product(512, 512, 512),
    "matmul_1024": product(1024, 1024, 1024),
    "matmul_2048": product(2048, 2048, 2048),
    "matmul_4096": product(4096, 4096, 4096),
    "matmul_8192": product(8192, 8192, 8192),
    "matmul_odd": product(1001, 1003, 999),
    "matmul_6304_768_3072": product(6304, 768, 3072),
    "matmul_128_768_3072": product(128, 768, 3072),
    "matmul_128_768_768": product(128, 768, 768),
    "matmul_784_1152_128": product(784, 1152, 128),
    **{f"matmul_{m}_4096": product(m, 4096, 4096) for m in (1, 2, 4, 8, 16)},
    **{f"matmul_{n}_bytes": byte_product(n, n, n) for n in (512, 1024, 2048, 4096, 8192)},
    "matmul_6304_768_3072_bytes": byte_product(6304, 768, 3072),
    "conv_64_56_bytes": byte_conv(32, 64, 56, 64, 3),
    "conv_256_14_bytes": byte_conv(32, 256, 14, 256, 3),
    "conv_64_56": conv(1, 64, 56, 64, 3),
    "conv_256_14": conv(1, 256, 14, 256, 3),
    "attention_128_64": attention(128, 64, 32),
    "attention_197_64": attention(197, 64, 32),
    **{f"attention_{n}_{d}": attention(n, d) for n in (512, 1024, 4096) for d in (64, 128)},
}


# ---- here ---------------------------------------------------------------------------------------


def pack(
    folder: Path,
    models: list[str],
    kernels: list[str],
    arch: str,
    precision: str,
    skeletons: Path | None,
    batch: int,
) -> None:
    import tilewright as tw

    folder.mkdir(parents=True, exist_ok=True)
    for name in (*models, *kernels):
        source = model_of(name, precision, skeletons, batch)
        target = f"cuda -arch={arch} -mcpu=x86-64-v3"
        try:
            model = tw.compile(source, target=target, precision=precision)
        except (tw.UserError, tw.InternalError) as error:
            print(f"{name}: {error}", flush=True)
            continue
        model.save(folder / f"{name}.twm")
        if name in KERNELS and KERNELS[name].torch is not None:
            print(f"{name}: packed", flush=True)
            continue
        here = tw.compile(source)
        inputs = inputs_of(here)
        answers = here.run(inputs)
        held = {f"in_{k}": v for k, v in inputs.items()}
        held |= {f"out_{k}": np.asarray(v) for k, v in enumerate(answers)}
        np.savez(folder / f"{name}.npz", **held)
        print(f"{name}: packed with answers", flush=True)


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


def run(folder: Path, only: list[str], torch_mode: str, batch: int) -> int:
    import tilewright as tw

    failed, rows = 0, []
    print(f"{'name':24} {'ms':>9} {'floor':>9} {'torch':>9} {'ratio':>6}  error", flush=True)
    for path in sorted(folder.glob("*.twm")):
        name = path.stem
        if only and name not in only:
            continue
        try:
            row = run_one(tw, name, path, torch_mode, batch)
        except Exception as error:  # the others are still worth knowing
            print(f"{name:24} {type(error).__name__}: {error}", flush=True)
            failed += 1
            continue
        rows.append(row)
        ratio = row["torch"] / row["ms"] if row["torch"] else math.nan
        print(
            f"{name:24} {row['ms']:9.4f} {row['floor']:9.4f} {row['torch']:9.4f} {ratio:6.2f}"
            f"  {row['error']:.1e}",
            flush=True,
        )
        failed += not row["error"] < row["tolerance"]
    (folder / "results.json").write_text(json.dumps(rows))
    return 1 if failed else 0


def run_one(tw: Any, name: str, path: Path, torch_mode: str, batch: int) -> dict[str, Any]:
    model = tw.load(path)
    kernel, tf32 = KERNELS.get(name), model.precision.startswith("tf32")
    if kernel is None or kernel.torch is None:
        held = np.load(path.with_suffix(".npz"))
        inputs = {k[3:]: held[k] for k in held.files if k.startswith("in_")}
        wanted = [held[f"out_{k}"] for k in range(len(held.files) - len(inputs))]
        mode = torch_mode if kernel is None else ""
        torch_ms = torch_model_ms(name, model.precision, mode, batch) if mode else 0.0
    else:
        inputs = inputs_of(model)
        wanted, torch_ms = torch_answers(kernel, list(inputs.values()), tf32=tf32)
    made = [np.asarray(a) for a in model.run(inputs)]
    error = max(map(difference, made, wanted))
    timing = model.time(inputs, repeat=5, min_repeat_ms=20)
    itemsize = next(iter(inputs.values())).itemsize
    floor = kernel.floor(itemsize, tf32=tf32) if kernel else 0.0
    precision = "float16" if kernel and itemsize == 2 else model.precision.split()[0]
    row = {"name": name, "ms": timing.median * 1e3, "floor": floor, "torch": torch_ms}
    return {**row, "error": float(error), "tolerance": TOLERANCES.get(precision, 0.2)}


def difference(made: Any, wanted: Any) -> float:
    if wanted is None:
        return 0.0
    made, wanted = np.asarray(made, np.float64), np.asarray(wanted, np.float64)
    scale = np.abs(wanted).max(initial=1e-30)
    return float(np.abs(made - wanted).max(initial=0.0) / scale)


def torch_answers(kernel: Kernel, arrays: list[Any], *, tf32: bool) -> tuple[list[Any], float]:
    """PyTorch's answers, and the milliseconds of its kernel inside a CUDA graph; with `tf32`, of
    one that may multiply so."""
    try:
        import torch
    except ImportError:
        return [None], 0.0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    given = [torch.from_numpy(a).cuda() for a in arrays]
    assert kernel.torch is not None
    call = TORCH[kernel.torch](torch, kernel)

    def step() -> Any:
        return call(*given)

    wanted = step().cpu().numpy()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    return [wanted], graph_ms(torch, step)


def torch_byte_product(torch: Any, weights: Any) -> Callable[..., Any]:
    """By weights whose columns lie together."""
    columns = torch.from_numpy(weights.T.copy()).cuda().t()
    return lambda x: torch._int_mm(x, columns)


def torch_model_ms(name: str, precision: str, mode: str, batch: int) -> float:
    from whole_models.torch_gpu import best_ms

    dtype = "float16" if "float16" in precision else "float32"
    return best_ms(name, dtype, mode, graph_ms, batch, tf32=precision.startswith("tf32"))


TORCH: dict[str, Callable[[Any, Kernel], Callable[..., Any]]] = {
    "add": lambda torch, _: torch.add,
    "softmax": lambda torch, _: lambda x: torch.softmax(x, -1),
    "transpose": lambda torch, _: lambda x: x.t().contiguous(),
    "sum": lambda torch, _: lambda x: x.sum(1),
    "matmul": lambda torch, _: torch.matmul,
    "byte_product": lambda torch, k: torch_byte_product(torch, byte_weights(k)),
    "attention": lambda torch, _: torch.nn.functional.scaled_dot_product_attention,
    "conv2d": lambda torch, k: (
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=k.attrs["pads"][0])
    ),
}


def graph_ms(torch: Any, step: Callable[[], Any], count: int = 50) -> float:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    times = []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            graph.replay()
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
    parser.add_argument("--torch", default="", choices=["max-autotune", "default"])
    given = parser.parse_args()
    models, kernels = ([n for n in t.split(",") if n] for t in (given.models, given.kernels))
    if given.what == "run":
        return run(given.folder, models, given.torch, given.batch)
    if given.what == "strip":
        strip(given.folder, models, given.batch)
    else:
        options = given.arch, given.precision, given.skeletons, given.batch
        pack(given.folder, models, kernels, *options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
