"""Shapes, parts and elements of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.onnx.element_types import onnx_number
from tilewright.frontends.onnx.writing.table import operand, writes
from tilewright.frontends.onnx.writing.writer import Writer
from tilewright.graph import Call
from tilewright.ir import Const, DType, as_expr
from tilewright.support.errors import UserError

_INT64 = DType.of("int64")


@writes("reshape")
def reshape(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Reshape", [w.name(operand(call, 0)), *_shape(w, call)], outputs, **_zeros(call))


def _shape(w: Writer, call: Call) -> list[str]:
    sizes = [as_expr(d) for d in call.attrs["shape"]]
    fixed = [int(s.value) for s in sizes if isinstance(s, Const)]
    free = len(sizes) - len(fixed)
    if free == 1 and -1 not in fixed and 0 not in fixed:
        return [w.numbers([int(s.value) if isinstance(s, Const) else -1 for s in sizes])]
    return [w.dims(sizes)]


def _zeros(call: Call) -> dict[str, int]:
    """A size of 0 means 0, unless another size is -1."""
    sizes = [as_expr(s) for s in call.attrs["shape"]]
    fixed = [int(s.value) for s in sizes if isinstance(s, Const)]
    is_plain = len(fixed) == len(sizes) and 0 not in fixed
    return {} if is_plain or -1 in fixed else {"allowzero": 1}


@writes("flatten")
def flatten(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Flatten", w.arguments(call), outputs, axis=call.attrs["axis"])


@writes("transpose")
def transpose(w: Writer, call: Call, outputs: list[str]) -> None:
    axes = call.attrs["axes"]
    w.node("Transpose", w.arguments(call), outputs, perm=None if axes is None else list(axes))


@writes("squeeze", "unsqueeze")
def squeeze(w: Writer, call: Call, outputs: list[str]) -> None:
    axes = call.attrs["axes"]
    names = [w.name(operand(call, 0)), *([] if axes is None else [w.numbers(axes)])]
    w.node(call.op.name.capitalize(), names, outputs)


@writes("concat")
def concat(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Concat", w.arguments(call), outputs, axis=call.attrs["axis"])


@writes("split")
def split(w: Writer, call: Call, outputs: list[str]) -> None:
    names = [w.name(operand(call, 0)), w.dims(call.attrs["sizes"])]
    w.node("Split", names, outputs, axis=call.attrs["axis"])


@writes("slice")
def slice_(w: Writer, call: Call, outputs: list[str]) -> None:
    starts, ends = call.attrs["starts"], call.attrs["ends"]
    axes, steps = call.attrs["axes"], call.attrs["steps"]
    axes = range(len(starts)) if axes is None else axes
    names = [w.name(operand(call, 0)), w.dims(starts), w.dims(ends), w.numbers(axes)]
    w.node("Slice", [*names, *([] if steps is None else [w.numbers(steps)])], outputs)


@writes("expand", "full")
def expand(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Expand", [w.name(operand(call, 0)), w.dims(call.attrs["shape"])], outputs)


@writes("tile")
def tile(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Tile", [w.name(operand(call, 0)), w.dims(call.attrs["repeats"])], outputs)


@writes("pad")
def pad(w: Writer, call: Call, outputs: list[str]) -> None:
    around = w.dims([*call.attrs["before"], *call.attrs["after"]])
    names = [w.name(operand(call, 0)), around]
    value = call.args[1]
    w.node("Pad", [*names, "" if value is None else w.name(value)], outputs, mode=_mode(call))


def _mode(call: Call) -> str:
    return _one_of(call, "mode", ("constant", "reflect", "edge", "wrap"))


def _one_of(call: Call, name: str, known: Sequence[str]) -> Any:
    value = call.attrs[name]
    if value not in known:
        raise UserError(f"cannot write {call.op.name} of {name} {value} to ONNX")
    return value


@writes("gather")
def gather(w: Writer, call: Call, outputs: list[str]) -> None:
    _one_of(call, "mode", ("check",))
    w.node("Gather", w.arguments(call), outputs, axis=call.attrs["axis"])


@writes("gather_elements")
def gather_elements(w: Writer, call: Call, outputs: list[str]) -> None:
    _one_of(call, "mode", ("check",))
    w.node("GatherElements", w.arguments(call), outputs, axis=call.attrs["axis"])


@writes("gather_nd")
def gather_nd(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("GatherND", w.arguments(call), outputs, batch_dims=call.attrs["batch_dims"])


@writes("scatter_elements")
def scatter_elements(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("ScatterElements", w.arguments(call), outputs, **call.attrs)


@writes("scatter_nd")
def scatter_nd(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("ScatterND", w.arguments(call), outputs, **call.attrs)


@writes("shape_of")
def shape_of(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Shape", w.arguments(call), outputs, **call.attrs)


@writes("size_of")
def size_of(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Size", w.arguments(call), outputs)


@writes("dims")
def dims(w: Writer, call: Call, outputs: list[str]) -> None:
    flat = w.node("Reshape", [w.dims(call.attrs["elements"]), w.numbers(call.attrs["shape"])])
    dtype = call.attrs["dtype"]
    kind = {"to": onnx_number(dtype)} if dtype is not _INT64 else {}
    w.node("Cast" if kind else "Identity", [flat], outputs, **kind)


@writes("range")
def range_(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Range", w.arguments(call), outputs)


@writes("ramp")
def ramp(w: Writer, call: Call, outputs: list[str]) -> None:
    one = w.node("Reshape", [w.dims([call.attrs["size"]]), w.numbers([])])
    first, by = (w.scalar(n, _INT64) for n in (0, 1))
    places = w.node("Range", [first, one, by])
    kind = operand(call, 0).dtype
    if kind is not _INT64:
        places = w.node("Cast", [places], to=onnx_number(kind))
    start, step = (w.node("Reshape", [a, w.numbers([])]) for a in w.arguments(call))
    w.node("Add", [start, w.node("Mul", [places, step])], outputs)


@writes("trilu")
def trilu(w: Writer, call: Call, outputs: list[str]) -> None:
    flat = w.node("Reshape", [w.dims([call.attrs["k"]]), w.numbers([])])
    w.node("Trilu", [w.name(operand(call, 0)), flat], outputs, upper=int(call.attrs["upper"]))


@writes("depth_to_space")
def depth_to_space(w: Writer, call: Call, outputs: list[str]) -> None:
    attrs = {"blocksize": call.attrs["block"], "mode": call.attrs["mode"]}
    w.node("DepthToSpace", w.arguments(call), outputs, **attrs)


@writes("space_to_depth")
def space_to_depth(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("SpaceToDepth", w.arguments(call), outputs, blocksize=call.attrs["block"])
