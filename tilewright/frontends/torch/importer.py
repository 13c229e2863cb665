"""Converts the nodes of an FX graph."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright.frontends.common.missing import refuse_missing
from tilewright.frontends.torch.node import Complex, Node
from tilewright.frontends.torch.ops.complex import BY_PARTS, BY_RULE
from tilewright.frontends.torch.ops.control import CHECKS, HIGHER_ORDER
from tilewright.frontends.torch.package import is_list
from tilewright.frontends.torch.symbols import Symbols
from tilewright.frontends.torch.table import ATEN, find_converter
from tilewright.frontends.torch.tensors import array_of, element_type, is_complex
from tilewright.graph import Builder, Value
from tilewright.support.errors import InternalError, TilewrightError, UserError
from tilewright.support.faults import during


def operator_name(target: Any) -> tuple[str, str] | None:
    """Domain and name of a node's operator; None for Python functions."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        domain, _, name = schema.name.partition("::")
        return domain, f"{name}.{schema.overload_name or 'default'}"
    if type(target).__module__.startswith("torch._higher_order_ops") or hasattr(
        target, "_higher_order_op"
    ):
        return HIGHER_ORDER, target.__name__
    is_higher = any(c.__name__ == "HigherOrderOperator" for c in type(target).__mro__)
    return (HIGHER_ORDER, target.__name__) if is_higher else None


def is_check(target: Any) -> bool:
    """Whether a node computes nothing."""
    named = operator_name(target)
    return named is not None and named[0] == ATEN and named[1].partition(".")[0] in CHECKS


class Importer:
    """Converts one program."""

    def __init__(self) -> None:
        self.builder = Builder("main")
        self.symbols = Symbols()
        self._constants: dict[Any, Any] = {}

    # ---- constants ------------------------------------------------------------------------------

    def constant(self, tensor: Any, name: str) -> Any:
        """A weight; tensors that share all their memory are one constant."""
        key = (
            tensor.untyped_storage().data_ptr() or id(tensor),
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
        )
        if key not in self._constants:
            self._constants[key] = self._constant_of(tensor, name)
        return self._constants[key]

    def _constant_of(self, tensor: Any, name: str) -> Any:
        array = array_of(tensor)
        dtype = element_type(tensor.dtype)
        if array.dtype.kind != "c":
            return self.builder.constant(array, dtype, name)
        return Complex(
            self.builder.constant(array.real, dtype, f"{name}_real"),
            self.builder.constant(array.imag, dtype, f"{name}_imag"),
        )

    # ---- graphs ---------------------------------------------------------------------------------

    def graph(self, module: Any, args: Sequence[Any]) -> list[Any]:
        """Convert the nodes of a graph for these arguments; the values of its outputs."""
        values: dict[Any, Any] = {}
        given = iter(args)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = self._attribute(module, node.target)
            elif node.op == "call_function":
                values[node] = self._call(node, values)
            elif node.op == "output":
                return _flat(_mapped(node.args[0], values))
            else:
                raise UserError(f"{node.format_node()} is no call of an operator")
        raise UserError("a graph has no output")

    def _attribute(self, module: Any, path: str) -> Any:
        found = module
        for part in path.split("."):
            found = getattr(found, part)
        return self.constant(found, path) if hasattr(found, "untyped_storage") else found

    def _call(self, node: Any, values: Mapping[Any, Any]) -> Any:
        if is_check(node.target):
            return None
        origin = self.builder.origin
        self.builder.origin = text = node_text(node)
        try:
            with during("node", text):
                return self._converted(node, values)
        except TilewrightError as error:
            raise _located(error, text) from error.__cause__
        finally:
            self.builder.origin = origin

    def _converted(self, node: Any, values: Mapping[Any, Any]) -> Any:
        named, meta = operator_name(node.target), node.meta.get("val")
        if node.target is operator.getitem:
            return values[node.args[0]][node.args[1]]
        if _is_size(meta) and self.symbols.knows(meta):
            return self.symbols.dim(meta)
        if named is None:
            return _python(node, values)
        args, metas = _arguments(node, values)
        result = self._emitted(named, args, metas, meta)
        self._learn(meta, result)
        return result

    def _emitted(
        self, named: tuple[str, str], args: dict[str, Any], metas: dict[str, Any], meta: Any
    ) -> Any:
        converter = find_converter(*named)
        made = Node(self, named[1], args, metas, meta)
        plain = named[1].partition(".")[0]
        if any(map(_has_complex, args.values())) or (plain in BY_RULE and _is_complex(meta)):
            if plain in BY_RULE:
                return BY_RULE[plain](made)
            if plain in BY_PARTS:
                return self._by_parts(named, args, metas, meta)
        if converter is None:
            raise UserError(f"there is no converter for {'::'.join(named)}")
        return _as_result(converter(made))

    def _by_parts(
        self, named: tuple[str, str], args: dict[str, Any], metas: dict[str, Any], meta: Any
    ) -> Any:
        """The operator applied separately to real and imaginary parts."""
        parts = [
            self._emitted(named, {k: _part(a, which) for k, a in args.items()}, metas, meta)
            for which in ("real", "imag")
        ]
        if isinstance(parts[0], list):
            return [Complex(a, b) for a, b in zip(*parts, strict=True)]
        return Complex(*parts)

    def _learn(self, meta: Any, result: Any) -> None:
        """Bind sizes that depend on data to those of the results."""
        metas = meta if is_list(meta) else [meta]
        results = result if is_list(result) else [result]
        for known, value in zip(metas, results, strict=False):
            if isinstance(value, Value) and hasattr(known, "shape"):
                self.symbols.bind_shape(known.shape, value.shape)
            elif _is_size(known) and isinstance(value, Value) and value.dtype.is_integer:
                self.symbols.bind_shape([known], (self.builder.read(value)[0],))


# ---- reading nodes ------------------------------------------------------------------------------


def node_text(node: Any) -> str:
    """The name of a node in messages, with the user's source line that it comes from."""
    trace = node.meta.get("stack_trace") or ""
    files = [line.strip() for line in trace.split("\n") if line.strip().startswith("File ")]
    where = f" ({files[-1]})" if files else ""
    return f"{node.name} = {getattr(node.target, '__name__', node.target)}{where}"


def _arguments(node: Any, values: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments by name, converted; and torch's metadata of them."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        named = {str(k): a for k, a in enumerate(node.args)} | dict(node.kwargs)
    else:
        names = [a.name for a in schema.arguments]
        named = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        named |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        named = {n: named[n] for n in names if n in named}
    metas = {n: _meta(a) for n, a in named.items()}
    return {n: _mapped(a, values) for n, a in named.items()}, metas


def _mapped(arg: Any, values: Mapping[Any, Any]) -> Any:
    if is_list(arg):
        return [_mapped(a, values) for a in arg]
    return values[arg] if _is_node(arg) else arg


def _meta(arg: Any) -> Any:
    if is_list(arg):
        return [_meta(a) for a in arg]
    return arg.meta.get("val") if _is_node(arg) else arg


def _is_node(arg: Any) -> bool:
    return type(arg).__name__ == "Node" and hasattr(arg, "meta")


def _is_size(meta: Any) -> bool:
    return type(meta).__name__ == "SymInt" or type(meta) is int


def _python(node: Any, values: Mapping[Any, Any]) -> Any:
    """A Python function on numbers that the program computes."""
    args = [_mapped(a, values) for a in node.args]
    name = getattr(node.target, "__name__", "")
    known = {"add", "sub", "mul", "truediv", "mod", "neg", "lt", "le", "gt", "ge", "pow"}
    if name in known and any(isinstance(a, Value) for a in args):
        return node.target(*args)
    if name in ("sym_float", "sym_int") and isinstance(args[0], Value):
        return args[0]
    # Conditions on sizes: only torch's checks, and branches, use them.
    return node.meta.get("val")


def _has_complex(arg: Any) -> bool:
    if is_list(arg):
        return any(map(_has_complex, arg))
    return isinstance(arg, Complex)


def _is_complex(meta: Any) -> bool:
    return hasattr(meta, "dtype") and is_complex(meta.dtype)


def _part(arg: Any, which: str) -> Any:
    if is_list(arg):
        return [_part(a, which) for a in arg]
    return getattr(arg, which) if isinstance(arg, Complex) else arg


def _as_result(result: Any) -> Any:
    return list(result) if is_list(result) else result


def _flat(outputs: Any) -> list[Any]:
    return list(outputs) if is_list(outputs) else [outputs]


def _located(error: TilewrightError, origin: str) -> TilewrightError:
    """The error with the node it comes from; the innermost one is named."""
    if isinstance(error, InternalError) or "\n    at " in error.listing:
        return error
    kept = [t for t in error.listing.split("\n") if t and not t.startswith("    from ")]
    listing = "\n".join(["", *kept, f"    at {origin}"])
    return UserError(error.what, reason=error.reason, remedy=error.remedy, listing=listing)


# ---- what no converter serves -------------------------------------------------------------------


def calls_of(module: Any) -> Iterator[Any]:
    """All calls of operators, those in graphs inside too."""
    for inner in module.modules():
        for node in getattr(getattr(inner, "graph", None), "nodes", ()):
            if node.op == "call_function" and operator_name(node.target) is not None:
                yield node


def is_served(node: Any) -> bool:
    """Whether a node can be converted, as far as its operator shows."""
    named = operator_name(node.target)
    return (
        named is None
        or is_check(node.target)
        or _is_size(node.meta.get("val"))
        or find_converter(*named) is not None
    )


def require_converters(module: Any, name: str = "the program") -> None:
    """Refuse a program that has operators which nothing converts, with a list of them."""
    missing: dict[str, list[str]] = {}
    for node in calls_of(module):
        if not is_served(node):
            key = "::".join(operator_name(node.target) or ())
            missing.setdefault(key, []).append(node.name)
    refuse_missing(
        name,
        dict(sorted(missing.items())),
        remedy="write converters for them (tilewright.frontends.torch.register_converter), or"
        ' let torch.compile(net, backend="tilewright") run those parts eagerly',
    )
