"""Archives that torch.export.save writes (.pt2), read without running anything in them.

torch's own loader unpickles parts of an archive, looks functions up by any name in it and lets
sympy evaluate its expressions. So the parts are read here: weights as bytes, the program as JSON
whose names and expressions are checked before torch's deserializer gets it. Pickled parts are
refused; sample inputs, which are pickled, are not read.
"""

from __future__ import annotations

import io
import json
import mmap
import re
import warnings
import zipfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.sources import Source, is_bytes
from tilewright.frontends.torch.ops.strided import looks_around
from tilewright.frontends.torch.package import is_list, torch_package
from tilewright.support.archives import UNREADABLE, read_member
from tilewright.support.errors import UserError

#: The first bytes of files of torch.save that are pickles, not archives.
_MAGIC: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: What a program may call.
_TARGET: Final = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|_operator\.(?!attrgetter|methodcaller)\w+|math\.\w+"
    r"|torch\.(_?sym_\w+|_sym_sqrt)|"
)
#: The identifiers in sizes as sympy writes them.
_WORDS: Final = frozenset(
    """Symbol Integer Float Rational Add Mul Pow FloorDiv CleanDiv CeilDiv IntTrueDiv FloatTrueDiv
    Mod PythonMod ModularIndexing Max Min Abs Where PowByNatural FloatPow TruncToInt TruncToFloat
    CeilToInt FloorToInt RoundToInt RoundDecimal ToFloat Identity Equality Unequality Eq Ne
    StrictLessThan LessThan StrictGreaterThan GreaterThan And Or Not true false True False positive
    integer nonnegative negative zero nonzero real finite precision prec int_oo oo Infinity
    NegativeInfinity infinity""".split()
)
_SIZE: Final = re.compile(r"(?:[A-Za-z_]\w*|'\w+'|\d+(?:\.\d+)?|[(),=+*/ <>-]|\s)*")
#: Most bytes of a text, and of a record of weights.
_MOST_TEXT: Final = 1 << 30
_MOST_BYTES: Final = 1 << 36
_REMEDY: Final = "export it: torch.export.save(torch.export.export(net, inputs), 'net.pt2')"


def is_program(source: Any) -> bool:
    """Whether it is an ExportedProgram."""
    return any(c.__name__ == "ExportedProgram" for c in type(source).__mro__)


def is_torch_file(source: Source) -> bool:
    """Whether it is a file of PyTorch's: an archive of an exported program, or what is refused."""
    if source.head.startswith(_MAGIC):
        return True
    if not source.head.startswith(b"PK\x03\x04"):
        return False
    try:
        with zipfile.ZipFile(_opened(source.given)) as archive:
            return _kind(archive.namelist()) != ""
    except UNREADABLE:
        return False


def _opened(given: Any) -> Any:
    return io.BytesIO(bytes(given)) if is_bytes(given) else given


def _kind(names: list[str]) -> str:
    plain = {n.partition("/")[2] for n in names}
    if "archive_format" in plain and any(n.startswith("models/") for n in plain):
        return "program"
    return "pickle" if plain & {"data.pkl", "constants.pkl"} else ""


def load_archive(given: Any) -> Any:
    """The ExportedProgram in an archive: a path, or its bytes."""
    torch = torch_package()
    source = Source(given)
    with trusting(source.name, _REMEDY):
        try:
            with zipfile.ZipFile(_opened(given)) as archive:
                if _kind(archive.namelist()) == "program":
                    return _Archive(torch, source, archive).program()
        # The last one if JSON has a number or a text in place of a list or an object.
        except (*UNREADABLE, AttributeError) as error:
            if not source.head.startswith(_MAGIC):
                raise UserError(
                    f"{source.name} is damaged", reason=str(error), remedy=_REMEDY
                ) from None
    raise UserError(
        f"cannot read {source.name}",
        reason="it is a pickle of torch.save or torch.jit.save: reading it could run anything",
        remedy=f"load it where you trust it, then {_REMEDY}, and compile that",
    )


class _Archive:
    """An open archive of one exported program."""

    def __init__(self, torch: Any, source: Source, archive: zipfile.ZipFile) -> None:
        self._torch, self._archive = torch, archive
        self._root = archive.namelist()[0].partition("/")[0]
        self._memory = _mapped(source)

    def program(self) -> Any:
        schema: Any = import_module("torch._export.serde.schema")
        serialize: Any = import_module("torch._export.serde.serialize")
        name = self._model()
        data = read_member(self._archive, f"{self._root}/models/{name}.json", _MOST_TEXT)
        parsed = json.loads(data)
        _require_harmless(parsed)
        _require_whole(parsed)
        weights = self._tensors("weights", name)
        constants = self._tensors("constants", name)
        try:
            program = serialize._bytes_to_dataclass(schema.ExportedProgram, data)
            reader = serialize.ExportedProgramDeserializer()
            return reader.deserialize(program, weights, constants, b"")
        except Exception as error:
            raise UserError(
                "torch cannot read the program in the archive",
                reason=f"{type(error).__name__}: {error}",
                remedy=_REMEDY,
            ) from error

    def _model(self) -> str:
        start = f"{self._root}/models/"
        names = [
            n[len(start) : -len(".json")]
            for n in self._archive.namelist()
            if n.startswith(start) and n.endswith(".json")
        ]
        if len(names) != 1:
            raise UserError(
                f"the archive holds {len(names)} programs", remedy="save one program in an archive"
            )
        return names[0]

    def _tensors(self, folder: str, model: str) -> dict[str, Any]:
        base = f"{self._root}/data/{folder}/"
        path = f"{base}{model}_{folder}_config.json"
        config = json.loads(read_member(self._archive, path, _MOST_TEXT))["config"]
        return {name: self._tensor(base, name, row) for name, row in config.items()}

    def _tensor(self, base: str, name: str, row: dict[str, Any]) -> Any:
        meta = row["tensor_meta"]
        if row["use_pickle"] or meta is None:
            raise UserError(
                f"{name} is pickled in the archive",
                reason="reading it could run anything",
                remedy="export the program with plain tensors",
            )
        serialize: Any = import_module("torch._export.serde.serialize")
        dtype = serialize._SERIALIZE_TO_TORCH_DTYPE[meta["dtype"]]
        flat = self._flat(f"{base}{row['path_name']}", dtype)
        sizes, strides = ([d["as_int"] for d in meta[k]] for k in ("sizes", "strides"))
        offset = meta["storage_offset"]["as_int"]
        reach = sum((s - 1) * t for s, t in zip(sizes, strides, strict=True)) + offset
        if min([offset, *sizes, *strides]) < 0 or (0 not in sizes and reach >= flat.numel()):
            raise UserError(f"{name} reaches beyond its bytes in the archive", remedy=_REMEDY)
        tensor = self._torch.as_strided(flat, sizes, strides, offset)
        wanted = bool(row["is_param"])
        return self._torch.nn.Parameter(tensor, requires_grad=False) if wanted else tensor

    def _flat(self, path: str, dtype: Any) -> Any:
        """The elements of a record, mapped from the file if possible."""
        info = self._archive.getinfo(path)
        if self._memory is None or info.compress_type != zipfile.ZIP_STORED:
            data: Any = bytearray(read_member(self._archive, path, _MOST_BYTES))
        else:
            data = self._memory[_start(self._memory, info) :][: info.file_size]
        if not len(data):
            return self._torch.empty(0, dtype=dtype)
        if len(data) % dtype.itemsize:
            raise UserError(
                f"{path} in the archive is cut off",
                reason=f"{len(data)} bytes are no whole number of elements of {dtype}",
                remedy=_REMEDY,
            )
        array = np.frombuffer(data, np.uint8)
        if array.ctypes.data % dtype.itemsize:
            array = array.copy()
        with warnings.catch_warnings():
            # Nobody writes to weights; the array is a read-only mapping of the file.
            warnings.simplefilter("ignore")
            return self._torch.from_numpy(array).view(dtype)


def _mapped(source: Source) -> memoryview | None:
    if source.path is None:
        return None
    with source.path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _start(memory: memoryview, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a record begin: after its header, the name and the extra field."""
    header = memory[info.header_offset : info.header_offset + 30]
    name, extra = (int.from_bytes(header[k : k + 2], "little") for k in (26, 28))
    return info.header_offset + 30 + name + extra


# ---- hostile until checked ----------------------------------------------------------------------


def _require_harmless(program: Any) -> None:
    """Refuse a program that calls anything but operators, or sizes that are no expressions."""
    for key, text in _texts(program):
        if key == "target" and not _TARGET.fullmatch(text):
            raise UserError(f"the program calls {text[:80]!r}", reason="that is no operator")
        if key == "expr_str" and not _is_size(text):
            raise UserError(f"a size in the program is {text[:80]!r}", reason="it is no expression")


def _require_whole(program: Any) -> None:
    """Refuse offsets counted from the start of the memory that a tensor is a part of.

    torch does not tell its deserialized programs where in memory tensors were.
    """
    for graph in _dicts(program):
        if "tensor_values" not in graph:
            continue
        for node in graph["nodes"]:
            if _counts_from_start(node) and _start_of(graph, node) != {"as_int": 0}:
                raise looks_around()


def _counts_from_start(node: Any) -> bool:
    if not node["target"].startswith("torch.ops.aten.as_strided"):
        return False
    given = {row["name"]: row["arg"] for row in node["inputs"]}
    return "as_none" not in given.get("storage_offset", {"as_none": True})


def _start_of(graph: Any, node: Any) -> Any:
    """The offset in its memory of the tensor that a node reads."""
    (held,) = [row["arg"] for row in node["inputs"] if row["name"] == "self"]
    return graph["tensor_values"][held["as_tensor"]["name"]]["storage_offset"]


def _dicts(tree: Any) -> Iterator[dict[str, Any]]:
    """All dicts in JSON."""
    pending: list[Any] = [tree]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending += item.values()
        elif is_list(item):
            pending += item


def _texts(tree: Any) -> Iterator[tuple[str, str]]:
    """All texts in JSON, each with its key."""
    for found in _dicts(tree):
        for key, item in found.items():
            items = item if is_list(item) else [item]
            yield from ((key, i) for i in items if isinstance(i, str))


def _is_size(text: str) -> bool:
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"'\w+'", "", text))
    names = re.compile(r"[a-z]{1,4}\d+")
    return bool(_SIZE.fullmatch(text)) and all(w in _WORDS or names.fullmatch(w) for w in words)
