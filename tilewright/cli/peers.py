"""Other ways to run the same model, where they are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from tilewright.support.errors import UserError

#: Runs the model once on the inputs and gives its outputs in order.
Runner = Callable[[Mapping[str, Any]], list[Any]]


class MissingPeerError(UserError):
    """A peer that is not installed, or that cannot take the model; one line says why."""

    def __str__(self) -> str:
        reason = f": {first_line(self.reason)}" if self.reason else ""
        return f"{self.what}{reason}{f' ({self.remedy})' if self.remedy else ''}"


def onnxruntime(
    model: Path | bytes, threads: int | None = None, *, optimized: bool = True
) -> Runner:
    ort = _imported("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads:
        options.intra_op_num_threads = threads
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise MissingPeerError("ONNX Runtime refuses the model", reason=str(error)) from None
    return lambda inputs: session.run(None, dict(inputs))


def openvino(model: Path | bytes, threads: int | None = None) -> Runner:
    ov = _imported("openvino")
    # Where a processor has half precision, that would be its default: no peer of single precision.
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    compiled = ov.Core().compile_model(
        model if isinstance(model, bytes) else str(model), "CPU", settings
    )
    request = compiled.create_infer_request()

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        found = request.infer(dict(inputs))
        return [found[o] for o in compiled.outputs]

    return run


def torch(model: Path | bytes, threads: int | None = None) -> Runner:
    torch_ = _imported("torch")
    convert = _imported("onnx2torch").convert
    if threads:
        torch_.set_num_threads(threads)
    module = torch_.compile(convert(str(model)).eval())

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        with torch_.inference_mode():
            found: Any = module(*(torch_.from_numpy(a) for a in inputs.values()))
        several = cast("list[Any]", found if isinstance(found, tuple | list) else [found])
        return [t.numpy() for t in several]

    return run


#: By the names that `--vs` takes.
PEERS: dict[str, Callable[[Path | bytes, int | None], Runner]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": torch,
}


def _imported(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingPeerError(f"{missing} is missing", remedy=f"pip install {missing}") from None
    except Exception as error:  # packages that do not go together fail in any way of their own
        raise MissingPeerError(f"{name} cannot be imported", reason=str(error)) from None


def first_line(text: str) -> str:
    """The first line with something on it."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
