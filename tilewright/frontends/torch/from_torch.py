"""From an exported program to a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.sources import Shapes
from tilewright.frontends.torch.exported import decomposed, export_module
from tilewright.frontends.torch.importer import Importer, require_converters
from tilewright.frontends.torch.node import Complex, Node
from tilewright.frontends.torch.symbols import expression
from tilewright.frontends.torch.tensors import array_of, element_type, is_complex
from tilewright.graph import Array, Module, TensorType, Value, passes
from tilewright.ir import Expr, Var
from tilewright.support.errors import UserError
from tilewright.support.faults import during

#: Smaller sizes violate what torch assumes of every size that is not fixed.
_LEAST: Final = 2
#: Kinds of results of a program: those of forward, and new values of something.
_RETURNED: Final = (
    "USER_OUTPUT",
    "LOSS_OUTPUT",
    "GRADIENT_TO_PARAMETER",
    "GRADIENT_TO_USER_INPUT",
)
_STATES: Final = ("BUFFER_MUTATION", "PARAMETER_MUTATION")
_CHANGED_INPUTS: Final = ("USER_INPUT_MUTATION",)


def from_torch(source: Any, inputs: Any = None, shapes: Shapes | None = None) -> Module:
    """The graph of an nn.Module, an ExportedProgram or a .pt2 archive (a path, or its bytes).

    A module is traced by `torch.export` on `inputs`: a tuple of tensors, or a dict by name.
    `shapes` gives inputs names for dimensions that are not those of the example. Buffers and
    parameters become constants over the memory of the tensors; those that the program changes are
    inputs and outputs after the others, of the same names. So is, as an output, an input that it
    changes.
    """
    shapes = shapes or {}
    program = _program_of(source, inputs, shapes)
    with during("front end", "PyTorch"), trusting("the exported program"):
        module = convert_program(decomposed(program))
    return passes.bind_shapes(module, shapes) if shapes else module


def first_states(source: Any, inputs: Any = None) -> dict[str, Array]:
    """The initial values of buffers and parameters that a program changes, by name."""
    program = _program_of(source, inputs, {})
    with during("front end", "PyTorch"), trusting("the exported program"):
        tensors = _constants(program)
        return {name: array_of(tensors[name]).copy() for name in _state_names(decomposed(program))}


def _program_of(source: Any, inputs: Any, shapes: Shapes) -> Any:
    from tilewright.frontends.torch.archive import is_program, load_archive

    if is_program(source):
        return source
    if hasattr(source, "named_parameters"):
        return export_module(source, inputs, shapes)
    return load_archive(source)


def convert_program(program: Any) -> Module:
    """The graph of an exported program whose operators all have converters."""
    require_converters(program.graph_module)
    importer = Importer()
    values = _operands(importer, program)
    _require_ranges(importer, program, values)
    results = importer.graph(program.graph_module, list(values.values()))
    _add_outputs(importer, program, results, {id(v) for v in values.values()})
    return importer.builder.build()


def input_names(source: Any, inputs: Any = None, shapes: Shapes | None = None) -> list[str]:
    """The names of the inputs of a model, in order."""
    return [p.name for p in from_torch(source, inputs, shapes).main.params]


def _state_names(program: Any) -> list[str]:
    """The buffers and parameters that a program changes."""
    specs = program.graph_signature.output_specs
    return [str(s.target) for s in specs if s.kind.name in _STATES]


# ---- what goes in -------------------------------------------------------------------------------


def _operands(importer: Importer, program: Any) -> dict[Any, Any]:
    """A value for each placeholder: inputs of the model, and constants."""
    signature, nodes = program.graph_signature, list(program.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    constants, states = _constants(program), set(_state_names(program))
    values: dict[Any, Any] = {}
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.kind.name == "USER_INPUT":
            values[node] = user_input(importer, node, spec.arg)
        elif spec.kind.name == "TOKEN":
            values[node] = None
        elif spec.target in states:
            values[node] = State(str(spec.target))
        else:
            values[node] = importer.constant(constants[spec.target], node.name)
    # Inputs that are sizes come after tensors, whose shapes may determine them.
    for node, value in values.items():
        if isinstance(value, Size):
            values[node] = size_input(importer, node)
    for node, value in values.items():
        if isinstance(value, State):
            values[node] = tensor_input(importer, value.name, node.meta["val"])
    return values


def _constants(program: Any) -> dict[str, Any]:
    found = {**program.constants, **program.state_dict}
    return {name: t for name, t in found.items() if hasattr(t, "untyped_storage")}


class Size:
    """An input that is an integer."""


class State(NamedTuple):
    """A buffer or parameter that the program changes."""

    name: str


def user_input(importer: Importer, node: Any, arg: Any = None) -> Any:
    """The value of an input; numbers and None are those of the traced program."""
    meta = node.meta.get("val")
    if hasattr(meta, "shape") and hasattr(meta, "dtype"):
        return tensor_input(importer, node.name, meta)
    if type(meta).__name__ == "SymInt":
        return Size()
    return getattr(arg, "value", meta)


def tensor_input(importer: Importer, name: str, meta: Any) -> Value:
    """An input that is a tensor; its symbolic sizes become dimensions."""
    if is_complex(meta.dtype):
        raise UserError(
            f"input {name} is {meta.dtype}",
            reason="complex numbers do not cross the border",
            remedy="pass torch.view_as_real of it, and torch.view_as_complex inside",
        )
    for size in meta.shape:
        expr = expression(size)
        for symbol in sorted(expr.free_symbols, key=str) if expr is not None else ():
            if symbol not in importer.symbols:
                importer.symbols.bind(symbol, Var(str(symbol)))
    shape = [importer.symbols.dim(s) for s in meta.shape]
    return importer.builder.input(name, TensorType(element_type(meta.dtype), shape))


def size_input(importer: Importer, node: Any) -> Any:
    """A size that is an input itself; it may be determined by the shape of some tensor."""
    meta = node.meta["val"]
    if not importer.symbols.knows(meta):
        value = importer.builder.input(node.name, "int64", ())
        importer.symbols.bind(expression(meta), importer.builder.read(value, node.name)[0])
    return importer.symbols.dim(meta)


def _require_ranges(importer: Importer, program: Any, values: dict[Any, Any]) -> None:
    """Check at run time what torch assumes about sizes."""
    for symbol, range_ in program.range_constraints.items():
        holder = next((n for n, v in values.items() if _tells(symbol, n, v)), None)
        if holder is None:
            continue
        dim = importer.symbols.dim(symbol)
        if not isinstance(dim, Expr):
            continue
        conditions, messages = list[Any](), list[str]()
        if range_.lower.is_Integer and int(range_.lower) > _LEAST:
            conditions.append(dim >= int(range_.lower))
            messages.append(f"{symbol} must be at least {range_.lower}")
        if range_.upper.is_Integer:
            conditions.append(dim <= int(range_.upper))
            messages.append(f"{symbol} must be at most {range_.upper}")
        if conditions:
            values[holder] = importer.builder.require(
                values[holder], conditions=conditions, messages=messages
            )


def _tells(symbol: Any, node: Any, value: Any) -> bool:
    if not isinstance(value, Value) or value.constant is not None:
        return False
    return any(expression(s) == symbol for s in getattr(node.meta.get("val"), "shape", ()))


# ---- what comes out -----------------------------------------------------------------------------


def _add_outputs(importer: Importer, program: Any, results: Sequence[Any], taken: set[int]) -> None:
    """The results of forward, then changed values: states, and inputs."""
    specs = program.graph_signature.output_specs
    rows = list(zip(specs, results, strict=True))
    for kinds in (_RETURNED, _STATES, _CHANGED_INPUTS):
        for spec, result in rows:
            if spec.kind.name not in kinds or result is None:
                continue
            arg = getattr(spec.arg, "name", "") or "number"
            add_output(importer, arg if kinds is _RETURNED else str(spec.target), result, taken)


def add_output(importer: Importer, name: str, result: Any, taken: set[int]) -> None:
    """Add a result; one that is an input, a constant or an output already is copied."""
    if isinstance(result, Complex):
        raise UserError(
            f"output {name} has complex numbers",
            reason="they do not cross the border",
            remedy="return torch.view_as_real of it",
        )
    node = Node(importer, "output", {}, {}, None)
    value = node.number(result)
    importer.builder.origin = f"output {name}"
    if value.constant is not None or id(value) in taken:
        value = importer.builder.identity(value)
    taken.add(id(value))
    importer.builder.output(value, names=[name])
