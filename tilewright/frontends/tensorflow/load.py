"""A model from a GraphDef, or from the folder of a SavedModel."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.files import mapped_file
from tilewright.frontends.common.wire import BYTES, VARINT, WireError, read_number
from tilewright.frontends.sources import Source, is_bytes
from tilewright.frontends.tensorflow.bodies import Body, Reference
from tilewright.frontends.tensorflow.bundle import Bundle
from tilewright.frontends.tensorflow.messages import SCHEMA
from tilewright.frontends.tensorflow.tensors import declared_shape
from tilewright.frontends.tensorflow.wire import Message
from tilewright.graph import Array
from tilewright.support.errors import UserError, nearest

_SAVED_MODEL: Final = "saved_model.pb"
_DEFAULT: Final = "serving_default"
#: Leaves of a graph that are not outputs.
_NO_OUTPUTS: Final = frozenset(
    "Assert Assign AssignVariableOp Const Enter LookupTableImportV2 NextIteration NoOp Placeholder "
    "Print SaveV2 RestoreV2 VarHandleOp VariableV2 MergeV2Checkpoints LoopCond Merge Switch "
    "HashTableV2 ReadVariableOp VarIsInitializedOp SaveSlices".split()
)

#: Operators at the entries and exits of loops and branches of the first generation.
_ENTRIES: Final = frozenset("Enter RefEnter Switch RefSwitch _SwitchN NextIteration".split())
_EXITS: Final = frozenset("Exit RefExit Merge RefMerge".split())


@dataclass
class ModelInput:
    """An input: its name, the result that it replaces, its element type and shape."""

    name: str
    source: Reference
    dtype: int
    shape: list[int | None] | None


@dataclass
class LoadedModel:
    """The nodes of a model, its functions, inputs and outputs."""

    name: str
    body: Body
    functions: dict[str, Body]
    inputs: list[ModelInput]
    outputs: list[tuple[str, Reference]]
    bundle: Bundle | None = None
    restore: str = ""
    #: The paths of files that the model reads, by the constants that name them.
    assets: dict[str, Path] = field(default_factory=dict[str, Path])


# ---- recognising --------------------------------------------------------------------------------


def is_tensorflow(source: Source) -> bool:
    """Whether a folder is a SavedModel, or a file a GraphDef, by its content."""
    if source.path is not None and source.path.is_dir():
        return (source.path / _SAVED_MODEL).is_file()
    head = memoryview(source.head)
    return _begins_saved_model(head) or _begins_graph(head)


def _begins_saved_model(head: memoryview) -> bool:
    """A version and a graph; ONNX has a text where the graph is, which begins with a letter."""
    try:
        number, at = read_number(head, 0)
        version, at = read_number(head, at)
        tag, at = read_number(head, at)
        _, at = read_number(head, at)
        inner, _ = read_number(head, at)
    except WireError:
        return False
    is_version = number == (1 << 3 | VARINT) and version == 1
    return is_version and tag == (2 << 3 | BYTES) and inner == (1 << 3 | BYTES)


def _begins_graph(head: memoryview) -> bool:
    """A node: a message with a name and an operator; ONNX's files begin with a number."""
    try:
        tag, at = read_number(head, 0)
        if tag != 1 << 3 | BYTES:
            return False
        _, at = read_number(head, at)
        name, at = _text_field(head, at, 1)
        op, _ = _text_field(head, at, 2)
    except ValueError:
        return False
    return bool(name) and bool(op) and (op[0].isupper() or op[0] == "_") and op.isascii()


def _text_field(head: memoryview, at: int, number: int) -> tuple[str, int]:
    tag, at = read_number(head, at)
    size, at = read_number(head, at)
    if tag != number << 3 | BYTES or size > len(head) - at:
        raise ValueError("no text")
    return str(head[at : at + size], "utf-8"), at + size


# ---- reading ------------------------------------------------------------------------------------


def load_model(
    source: Source,
    signature: str | None = None,
    outputs: list[str] | None = None,
) -> LoadedModel:
    """Read a model; `signature` and `outputs` select its outputs."""
    path = source.path
    if path is not None and path.is_dir():
        return _saved_model(_mapped(path / _SAVED_MODEL), path, signature)
    data = np.frombuffer(source.given, np.uint8) if is_bytes(source.given) else _mapped(path)
    if _begins_saved_model(data.data):
        return _saved_model(data, None if path is None else path.parent, signature)
    return _frozen(data, source.name, outputs)


def _mapped(path: Path | None) -> Array:
    assert path is not None
    try:
        return mapped_file(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read {path}", reason=reason) from None


def _functions(graph: Message) -> dict[str, Body]:
    found = [Body.of_function(f) for f in graph.library.function]
    return {f.name: f for f in found}


def _frozen(data: Array, name: str, wanted: list[str] | None) -> LoadedModel:
    graph = SCHEMA.message("GraphDef", data.data)
    body = Body("graph", graph.node)
    if not body.nodes:
        raise UserError(f"{name} has no nodes", remedy="check that the file is complete")
    if wanted is not None:
        refs = [body.reference(w) for w in wanted]
        outputs = [(w, r) for w, r in zip(wanted, refs, strict=True) if r is not None]
    else:
        outputs = _leaves(body)
    if not outputs:
        raise UserError(f"{name} has no outputs", reason="every node is used by another")
    needed = _needed(body, [r.node for _, r in outputs])
    own = [n for k, n in body.nodes.items() if n.op == "Placeholder" and k in needed]
    return LoadedModel(name, body, _functions(graph), [_placeholder(n) for n in own], outputs)


def _needed(body: Body, names: list[str]) -> set[str]:
    """All nodes that some nodes depend on."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += [r.node for r in body.inputs(body.node(name))]
    return found


def _placeholder(node: Message) -> ModelInput:
    attrs = node.attr
    shape = declared_shape(attrs["shape"].shape) if "shape" in attrs else None
    if shape == [] and not attrs["shape"].has("shape"):
        shape = None
    dtype = attrs["dtype"].type if "dtype" in attrs else 1
    return ModelInput(node.name, Reference(node.name, 0), dtype, shape)


def _leaves(body: Body) -> list[tuple[str, Reference]]:
    users: dict[str, list[str]] = {}
    for node in body.nodes.values():
        for reference in body.inputs(node):
            users.setdefault(reference.node, []).append(node.name)
    inside = _inside(body, users)
    leaves = [n for n in body.nodes.values() if n.name not in users and n.op not in _NO_OUTPUTS]
    leaves = [n for n in leaves if n.name not in inside]
    # Loops have an Exit for each of their variables, whether it is used or not; and freezing leaves
    # copies of constants that nothing uses.
    reached = _reached([n.name for n in body.nodes.values() if n.op == "Placeholder"], users)
    leaves = [n for n in leaves if n.op not in _EXITS] or leaves
    leaves = [n for n in leaves if n.name in reached] or leaves
    return [(n.name, Reference(n.name, 0)) for n in leaves]


def _reached(names: list[str], users: dict[str, list[str]]) -> set[str]:
    """All nodes that depend on some nodes."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += users.get(name, ())
    return found


def _inside(body: Body, users: dict[str, list[str]]) -> set[str]:
    """Nodes inside loops and branches of the first generation: none is an output."""
    pending = [n.name for n in body.nodes.values() if n.op in _ENTRIES]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [u for u in users.get(name, ()) if body.nodes[u].op not in _EXITS]
    return found


def _saved_model(data: Array, folder: Path | None, wanted: str | None) -> LoadedModel:
    name = "the model" if folder is None else str(folder)
    saved = SCHEMA.message("SavedModel", data.data)
    graphs = saved.meta_graphs
    if not graphs:
        raise UserError(f"{name} has no graphs", remedy="check that the folder is complete")
    meta = next((g for g in graphs if "serve" in g.meta_info_def.tags), graphs[0])
    signature = _signature(meta, name, wanted)
    body = Body("graph", meta.graph_def.node)
    inputs = [_input(body, key, info) for key, info in sorted(signature.inputs.items())]
    outputs = [_output(body, key, info) for key, info in sorted(signature.outputs.items())]
    prefix = None if folder is None else folder / "variables" / "variables"
    has_variables = prefix is not None and prefix.with_name("variables.index").is_file()
    return LoadedModel(
        name,
        body,
        _functions(meta.graph_def),
        inputs,
        outputs,
        Bundle(prefix) if has_variables and prefix is not None else None,
        meta.saver_def.restore_op_name,
        {} if folder is None else _assets(meta, folder),
    )


def _signature(meta: Message, name: str, wanted: str | None) -> Any:
    known = {k: v for k, v in meta.signature_def.items() if k != "__saved_model_init_op"}
    if wanted is not None and wanted not in known:
        raise UserError(f"{name} has no signature {wanted}", remedy=nearest(wanted, known))
    if not known:
        raise UserError(
            f"{name} has no signatures",
            reason="nothing says what goes in and comes out",
            remedy="save it with tf.saved_model.save(model, folder, signatures=…)",
        )
    if wanted is None:
        wanted = _DEFAULT if _DEFAULT in known else sorted(known)[0]
    return known[wanted]


def _input(body: Body, key: str, info: Message) -> ModelInput:
    reference = _plain(body, key, info)
    shape = declared_shape(info.tensor_shape) if info.has("tensor_shape") else None
    return ModelInput(key, reference, info.dtype, shape)


def _output(body: Body, key: str, info: Message) -> tuple[str, Reference]:
    return key, _plain(body, key, info)


def _plain(body: Body, key: str, info: Message) -> Reference:
    reference = body.reference(info.name) if info.name else None
    if reference is None:
        raise UserError(f"{key} is no tensor", reason="sparse and composite tensors are not read")
    return reference


def _assets(meta: Message, folder: Path) -> dict[str, Path]:
    """Files of the folder `assets` by the nodes that name them; nothing outside of it."""
    inside = (folder / "assets").resolve()
    found: dict[str, Path] = {}
    for asset in meta.asset_file_def:
        path = (inside / asset.filename).resolve()
        if not path.is_relative_to(inside):
            raise UserError(f"the asset {asset.filename} lies outside of the model's folder")
        found[asset.tensor_info.name.split(":")[0]] = path
    return found
