"""The exported program of a user's model: modules are traced, archives are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.frontends.sources import Shapes
from tilewright.frontends.torch.importer import (
    calls_of,
    is_served,
    operator_name,
    require_converters,
)
from tilewright.frontends.torch.ops.recurrent import no_packed_sequences
from tilewright.frontends.torch.package import is_list, torch_package
from tilewright.frontends.torch.table import ATEN
from tilewright.graph import passes
from tilewright.support.errors import UserError, nearest

#: Operators that torch would decompose, and that have converters here.
_KEPT: Final = frozenset(
    """scaled_dot_product_attention linear lstm gru rnn_tanh rnn_relu pixel_shuffle pixel_unshuffle
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_bicubic2d upsample_trilinear3d multilabel_margin_loss_forward""".split()
)


def export_module(module: Any, inputs: Any, shapes: Shapes) -> Any:
    """The exported program of an nn.Module."""
    torch = torch_package()
    if inputs is None:
        raise UserError(
            f"cannot compile the module {type(module).__name__} without inputs",
            reason="it is traced on an example",
            remedy="pass inputs=(x, …): a tuple of tensors, or a dict of them by name",
        )
    passes.require_shapes(shapes)
    args, kwargs = _arguments(inputs)
    if any(type(v).__name__ == "PackedSequence" for v in (*args, *kwargs.values())):
        raise no_packed_sequences(type(module).__name__)
    names = _names(module, args, kwargs)
    for name in shapes:
        if name not in names:
            raise UserError(
                f"shapes names the input {name}",
                reason=f"forward of {type(module).__name__} is given no such input",
                remedy=nearest(name, names),
            )
    free = {n: _free(torch, shapes.get(n), v) for n, v in names.items()}
    dynamic = free if any(free.values()) else None
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic, strict=False)
    except Exception as error:
        raise UserError(
            f"torch.export cannot export the module {type(module).__name__}",
            reason=f"{type(error).__name__}: {error}",
            remedy='change its forward as torch says, or use torch.compile(backend="tilewright")',
        ) from error


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if hasattr(inputs, "items"):
        return (), {str(k): v for k, v in inputs.items()}
    if is_list(inputs):
        return tuple(inputs), {}
    return (inputs,), {}


def _names(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the parameter names of forward."""
    import inspect

    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise UserError(
            f"these inputs do not fit forward of {type(module).__name__}", reason=str(error)
        ) from None
    return dict(bound.arguments)


def _free(torch: Any, shape: Sequence[Any] | None, value: Any) -> Any:
    """The named dimensions of an input, in torch's form."""
    if shape is None:
        return None
    if not hasattr(value, "shape") or len(shape) != len(value.shape):
        raise UserError(
            f"shapes gives an input the shape {list(shape)}", reason=f"the example is {value}"
        )
    for wanted, size in zip(shape, value.shape, strict=True):
        if isinstance(wanted, int) and wanted != size:
            raise UserError(
                f"shapes gives an input the shape {list(shape)}",
                reason=f"the example has the shape {list(value.shape)}",
                remedy="pass an example of that shape, or a name for the dimension",
            )
    # torch's ranges begin with 2 otherwise, and it assumes examples of 1 to be fixed.
    named = {k: torch.export.Dim.AUTO for k, d in enumerate(shape) if isinstance(d, str)}
    return named or None


def decomposed(program: Any) -> Any:
    """The program in operators that have converters, as far as torch can decompose others."""
    nodes = list(calls_of(program.graph_module))
    if all(is_served(n) and not _is_mutable(n.target) for n in nodes):
        return program
    torch = torch_package()
    table = torch.export.default_decompositions()
    for target in list(table.keys()):
        named = operator_name(target)
        if named is not None and named[0] == ATEN and named[1].partition(".")[0] in _KEPT:
            table.pop(target)
    try:
        return program.run_decompositions(table)
    except Exception as error:
        # If it fails, the operator at fault usually has no converter either.
        if not all(is_served(n) or _is_mutable(n.target) for n in nodes):
            require_converters(program.graph_module)
        raise UserError(
            "torch cannot take the operators of the program apart",
            reason=f"{type(error).__name__}: {error}",
            remedy='use torch.compile(net, backend="tilewright")',
        ) from error


def _is_mutable(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable
