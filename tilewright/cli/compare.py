"""`tilewright compare`: does the model compute what it should, and if not, from which layer on?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.cli.arrays import inputs_for, named_tensors
from tilewright.cli.command import Command, Exit
from tilewright.cli.loading import compiled, is_artifact, params_of
from tilewright.cli.options import add_compile_options, add_inputs, add_model, one_of
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console
    from tilewright.graph import Module
    from tilewright.insight.taps import Layer

#: Errors that are let pass where products are rounded.
_TOLERANCES = {"tf32": 0.005, "float16": 0.005, "bf16": 0.02, "float8": 0.1, "int8-dynamic": 0.1}
_AGAINST = ("reference", "onnxruntime", *(f"opt_level={k}" for k in range(4)))


def _peer(text: str) -> str:
    """One of the peers, or another model: a quantized one is compared with what it was made of."""
    return text if Path(text).suffix and Path(text).exists() else one_of(_AGAINST)(text)


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser, artifact=False)
    parser.add_argument(
        "--against",
        type=_peer,
        default="reference",
        help="reference (the operators' NumPy definitions; default), onnxruntime, opt_level=N, or"
        " another model's file",
    )
    parser.add_argument(
        "--layers", action="store_true", help="show the error of each layer that both have"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        help="error that is let pass, relative to a tensor's largest value; default 1e-3, for bf16"
        " 0.02, for float8 and int8-dynamic 0.1",
    )
    add_inputs(parser)
    add_compile_options(parser)


class Difference(NamedTuple):
    """How far a tensor is from what it should be."""

    name: str
    origin: str
    error: float
    detail: str

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.name}{where}: {self.detail}"


def _run(args: argparse.Namespace, console: Console) -> Exit:
    if is_artifact(args.model):
        raise UserError("compare needs the model itself", remedy="pass its file")
    model = compiled(args, console, args.target or "llvm")
    if args.tolerance is None:
        args.tolerance = _TOLERANCES.get(args.precision, 1e-3)
    inputs = inputs_for(model.inputs, args, console)
    names = [s.name for s in model.outputs]
    ours = named_tensors(names, model.run(inputs))
    with console.working(f"running {args.against}"):
        theirs = named_tensors(names, _peer_outputs(args, inputs))
    if ours.keys() != theirs.keys():
        names = f"{', '.join(theirs)} rather than {', '.join(ours)}"
        raise UserError(f"{args.against} gives other outputs", reason=f"it gives {names}")
    found = [_difference(n, "", ours[n], theirs[n], args.tolerance) for n in ours]
    wrong = [d for d in found if d.error > args.tolerance]
    console.result(against=args.against, tolerance=args.tolerance, precision=model.precision)
    console.result(outputs=[d._asdict() for d in found], denormals=model.denormals)
    if model.denormals == "flush":
        _report_denormals(args, console)
    for d in found:
        console.text(f"{'DIFFERS' if d in wrong else 'agrees '}  {d}")
    if args.layers or wrong:
        _compare_layers(args, inputs, console, bool(wrong))
    return Exit.DIFFERENT if wrong else Exit.DONE


def _report_denormals(args: argparse.Namespace, console: Console) -> None:
    """Name the constants that the model takes for zeros, in part or as a whole."""
    from tilewright.frontends import UnspecialisedError
    from tilewright.insight.denormals import denormal_constants

    try:
        found = denormal_constants(_graph(args))
    except UnspecialisedError:
        # There is no one graph, and constants may be all different.
        return
    console.result(denormal_constants=[c._asdict() for c in found])
    for constant in found:
        console.text(f"denormal, taken for zero (--denormals keep does not): {constant}")


def _peer_outputs(args: argparse.Namespace, inputs: Any) -> list[Any]:
    if args.against == "onnxruntime":
        from tilewright.cli.peers import onnxruntime

        return onnxruntime(args.model)(inputs)
    import tilewright as tw

    if args.against == "reference":
        return tw.graph.evaluate(_graph(args), inputs)
    if args.against not in _AGAINST:
        return tw.compile(args.against, shapes=dict(args.shapes)).run(inputs)
    level, shapes = int(args.against[-1]), dict(args.shapes)
    model = tw.compile(str(args.model), shapes=shapes, opt_level=level, params=params_of(args))
    return model.run(inputs)


def _graph(args: argparse.Namespace) -> Module:
    from tilewright.frontends import read_model

    return read_model(str(args.model), shapes=dict(args.shapes), params=params_of(args))


# ---- the first layer ----------------------------------------------------------------------------


def _compare_layers(
    args: argparse.Namespace, inputs: Any, console: Console, is_wrong: bool
) -> None:
    from tilewright.graph import PassContext
    from tilewright.insight.taps import compiled_layers
    from tilewright.target import Target

    level = PassContext().opt_level if args.opt_level is None else args.opt_level
    with console.working("looking for the layer"):
        target = Target.of(args.target or "llvm")
        precision, denormals = args.precision or "float32", args.denormals or "flush"
        with PassContext(opt_level=level, precision=precision, denormals=denormals):
            ours = compiled_layers(_graph(args), inputs, target)
        theirs = _peer_layers(args, inputs, [layer.name for layer in ours])
    if args.layers:
        _report_layers(ours, theirs, args.tolerance, console)
    if is_wrong:
        _blame(ours, theirs, args.tolerance, console)


def _report_layers(
    ours: Sequence[Layer], theirs: Mapping[str, Any], tolerance: float, console: Console
) -> None:
    found = list(differences(ours, theirs, tolerance))
    console.result(layers=[d._asdict() for d in found])
    for d in found:
        console.text(str(d))


def _blame(
    ours: Sequence[Layer], theirs: Mapping[str, Any], tolerance: float, console: Console
) -> None:
    first, count = first_difference(ours, theirs, tolerance)
    console.result(compared=count, first=first._asdict() if first else None)
    if first is None:
        console.text(f"all {count} layers that can be compared agree: the last one is at fault")
    else:
        console.text(f"first layer that differs: {first}")


def _peer_layers(args: argparse.Namespace, inputs: Any, wanted: Sequence[str]) -> Mapping[str, Any]:
    if args.against == "onnxruntime":
        return _onnxruntime_layers(args, inputs, set(wanted))
    from tilewright.graph import PassContext
    from tilewright.insight.taps import compiled_layers, reference_layers
    from tilewright.target import Target

    if args.against == "reference":
        layers = reference_layers(_graph(args), inputs)
    elif args.against not in _AGAINST:
        from tilewright.frontends import read_model

        other = read_model(args.against, shapes=dict(args.shapes))
        layers = compiled_layers(other, inputs, Target.of("llvm"))
    else:
        level = int(args.against[-1])
        with PassContext(opt_level=level):
            layers = compiled_layers(_graph(args), inputs, Target.of("llvm"))
    return {layer.name: layer.value for layer in layers}


def _onnxruntime_layers(
    args: argparse.Namespace, inputs: Any, wanted: set[str]
) -> Mapping[str, Any]:
    import onnx

    from tilewright.cli.peers import onnxruntime

    model: Any = onnx.load(str(args.model))  # pyright: ignore[reportUnknownMemberType]
    made = [n for node in model.graph.node for n in node.output if n in wanted]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made)
    # Its optimizer may fuse away what is asked for.
    run = onnxruntime(model.SerializeToString(), optimized=False)
    return dict(zip(made, run(inputs), strict=True))


def first_difference(
    ours: Sequence[Layer], theirs: Mapping[str, Any], tolerance: float
) -> tuple[Difference | None, int]:
    """The first layer off by more than `tolerance`, and how many could be compared up to it."""
    count = 0
    for found in differences(ours, theirs, tolerance):
        count += 1
        if found.error > tolerance:
            return found, count
    return None, count


def differences(
    ours: Sequence[Layer], theirs: Mapping[str, Any], tolerance: float
) -> Iterator[Difference]:
    """The error of each layer that both have."""
    for layer in ours:
        other = theirs.get(layer.name)
        value = None if other is None else _in_shape(layer.value, other.shape)
        if value is not None:
            yield _difference(layer.name, layer.origin, value, other, tolerance)


def _in_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """The value in this shape: as it is, or an image with its channels put together again."""
    if value.ndim == len(shape) + 1 and value.ndim > 3:
        joined = value.transpose(0, 1, value.ndim - 1, *range(2, value.ndim - 1))
        whole = joined.reshape(joined.shape[0], -1, *joined.shape[3:])
        value = whole[:, : shape[1]]
    return value if value.shape == shape else None


def _difference(name: str, origin: str, ours: Any, theirs: Any, tolerance: float) -> Difference:
    import numpy as np

    from tilewright.insight.errors import ErrorMeter

    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape:
        detail = f"shape {list(a.shape)} instead of {list(b.shape)}"
        return Difference(name, origin, float("inf"), detail)
    if a.dtype.kind in "OUS":
        same = bool((a == b).all())
        return Difference(name, origin, 0.0 if same else float("inf"), "equal" if same else "other")
    meter = ErrorMeter()
    where, error = meter.add(a, b), meter.relative
    detail = f"relative error {error:.2e}, {meter.sqnr:.1f} dB"
    if error > tolerance:
        at = [int(i) for i in np.unravel_index(where, a.shape)]
        detail += f", worst at {at}: {a.flat[where]} instead of {b.flat[where]}"
    return Difference(name, origin, error, detail)


COMMAND = Command(
    "compare",
    "compare a model's answers with a reference; name the first layer that differs",
    _configure,
    _run,
    (
        "compare model.onnx",
        "compare model.onnx --against onnxruntime --inputs in.npz",
        "compare model.onnx --against opt_level=0 --tolerance 1e-5",
        "compare model.onnx --precision int8-dynamic",
        "compare model.int8.onnx --against model.onnx --inputs in.npz --layers",
    ),
)
