"""Reads the builds of a model from an artifact, and checks everything it claims."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.artifact.container import MANIFEST, PARAMS, Container
from tilewright.runtime.artifact.contents import (
    Build,
    CaseKey,
    CasesContents,
    CompiledContents,
    Contents,
    HostedContents,
    Recording,
)
from tilewright.runtime.artifact.fields import Fields
from tilewright.runtime.artifact.seal import checksum_of, recording_seal, seal_in, seal_of
from tilewright.runtime.artifact.sign import Keys, Trust
from tilewright.runtime.artifact.write import FORMAT, VERSION
from tilewright.runtime.binding import ANY_SIZE, LIST_KINDS, ListSpec, NativeSpec, TensorSpec
from tilewright.runtime.objectfile import require_names
from tilewright.runtime.program import Program, TargetInfo, words_in_record
from tilewright.runtime.signature import DIM_OPERATIONS, Dim
from tilewright.runtime.threads import POOL_FUNCTIONS
from tilewright.support.denormals import DENORMALS, Denormals
from tilewright.support.dtype import DType
from tilewright.support.errors import TilewrightError
from tilewright.support.files import AnyPath
from tilewright.support.memory import ALIGNMENT

_DIM_DEPTH: Final = 64
_MESSAGE_VALUES: Final = 4
_VALUE_DEPTH: Final = 8


class StoredBuild(NamedTuple):
    """A build in an artifact that has not been read yet."""

    target: TargetInfo
    open: Callable[[], Build]


class Artifact:
    """An open artifact: what it is about, and its builds."""

    def __init__(self, path: AnyPath, *, verify: bool = True, trusted: Keys | None = None) -> None:
        trust = None if trusted is None else Trust(trusted)
        self._file, self._verify = Container(path, trust), verify
        self.path = self._file.path
        fields = Fields.parse(self._file.bytes(MANIFEST), self._file.refusal)
        self._check_version(fields)
        self.fields = fields
        self.builds = [self._candidate(f) for f in fields.all_fields("builds")]

    def _check_version(self, fields: Fields) -> None:
        if fields.text("format") != FORMAT:
            raise self._file.refusal("it is no artifact of Tilewright's")
        version = fields.integer("version")
        if version > VERSION:
            raise self._file.refusal(
                f"it has format version {version}, and this Tilewright reads up to {VERSION}",
                "update Tilewright, or save the model with this version",
            )

    def _candidate(self, fields: Fields) -> StoredBuild:
        target = fields.fields("target")
        features = frozenset(target.texts("features"))
        info = TargetInfo(target.text("text"), target.text("triple"), features)
        return StoredBuild(info, lambda: self._build(fields, info))

    def _build(self, fields: Fields, target: TargetInfo) -> Build:
        reader = _Reader(self._file, fields, target, verify=self._verify)
        memory = fields.fields("memory")
        sizes = {name: memory.integer(name) for name in memory}
        return Build(target, reader.pool, reader.model(fields.fields("model")), sizes)


class _Reader:
    """Reads the models of a build from a container."""

    def __init__(self, file: Container, build: Fields, target: TargetInfo, *, verify: bool) -> None:
        self._file, self._target, self._verify = file, target, verify
        self._params = file.view(PARAMS)
        self._is_checked = False
        self.pool = self.object(build, build.text("pool"))
        # Targets without threads have no pool.
        if self.pool:
            require_names([self.pool], POOL_FUNCTIONS, build.wrong)

    def model(self, fields: Fields) -> Contents:
        kind = fields.text("kind")
        if kind not in _KINDS:
            raise fields.wrong(f"a model of the kind {kind!r} is not known")
        return _KINDS[kind](self, fields)

    def object(self, fields: Fields, name: str) -> bytes:
        """Object code, whose digest must match its name."""
        code = self._file.bytes(name)
        if name != f"objects/{hashlib.sha256(code).hexdigest()}.o":
            raise fields.wrong(f"{name} holds other code than its name says")
        return code

    def require(self, name: str) -> None:
        """Refuse a missing member."""
        self._file.view(name)

    def text(self, name: str) -> str:
        try:
            return self._file.bytes(name).decode()
        except UnicodeDecodeError:
            raise self._file.refusal(f"{name} in it is no text") from None

    # ---- kinds of models ------------------------------------------------------------------------

    def compiled(self, fields: Fields) -> CompiledContents:
        texts = fields.fields("texts")
        program = _checked_program(self._program(fields), fields)
        constants = [self.array(f) for f in fields.all_fields("constants")]
        self._check_seal(program, constants, fields)
        members = {name: texts.text(name) for name in texts}
        recording = self._recording(program, fields) if "recorder" in fields else None
        return CompiledContents(program, tuple(constants), _Texts(self, members), recording)

    def _recording(self, program: Program, fields: Fields) -> Recording:
        """The recording program, whose seal must match this model's."""
        recorder = fields.fields("recorder")
        code = self.object(recorder, recorder.text("object"))
        made = Recording(code, recorder.integer("words"))
        own = seal_in(program.objects[0])
        if own is None or seal_in(code) != recording_seal(own, made.words):
            raise recorder.wrong(f"what records {program.name} was made for another program")
        return made

    def _check_seal(self, program: Program, constants: list[Array], fields: Fields) -> None:
        """Refuse data that the code was not compiled for."""
        entries = [f"{program.name}.{part}" for part in ("entry", "workspace")]
        names = [program.name] if self._target.is_bare else entries
        require_names(program.objects, names, fields.wrong)
        host, *kernels = program.objects
        found = [s for s in map(seal_in, program.objects) if s is not None]
        checksums = [f.integer("crc") for f in fields.all_fields("constants") if "crc" in f]
        if not found and not checksums:
            return  # Files of earlier versions have neither.
        made = seal_of(program, kernels, constants, checksums, self.pool, self._target)
        if seal_in(host) != made:
            raise fields.wrong(f"it says of {program.name} what does not hold for its code")

    def _program(self, fields: Fields) -> Program:
        pairs = [_pair(p, fields) for p in fields.values("records")]
        return Program(
            name=fields.text("name"),
            objects=tuple(self.object(fields, n) for n in fields.texts("objects")),
            inputs=tuple(_spec(f) for f in fields.all_fields("inputs")),
            outputs=tuple(_spec(f) for f in fields.all_fields("outputs")),
            dims=tuple(fields.texts("dims")),
            direct=tuple(fields.integers("direct")),
            records={fields.natural(k): fields.natural(at) for k, at in pairs},
            messages=tuple(fields.texts("messages")),
            origins=tuple(fields.texts("origins")),
            calls=tuple(fields.texts("calls")),
            # Files of earlier versions lack these; they used float32 and kept denormals.
            precision=fields.text("precision") if "precision" in fields else "float32",
            denormals=_denormals(fields) if "denormals" in fields else "keep",
        )

    def hosted(self, fields: Fields) -> HostedContents:
        constants, native = fields.fields("constants"), fields.fields("native")
        return HostedContents(
            self.text(fields.text("graph")),
            {name: self.array(constants.fields(name)) for name in constants},
            {name: self.compiled(native.fields(name)) for name in native},
        )

    def cases(self, fields: Fields) -> CasesContents:
        names = tuple(fields.texts("names"))
        by_value, by_shape = (frozenset(fields.texts(n)) for n in ("by_value", "by_shape"))
        if not (by_value | by_shape).issubset(names):
            raise fields.wrong("it depends on inputs that it does not have")
        found: list[tuple[CaseKey, CompiledContents | HostedContents]] = []
        for case in fields.all_fields("cases"):
            model = self.model(case.fields("model"))
            if isinstance(model, CasesContents):
                raise fields.wrong("a case of several cases")
            key = _key(case)
            deciding = [[name for name, _ in part] for part in key]
            if deciding != [[n for n in names if n in by] for by in (by_value, by_shape)]:
                raise fields.wrong("a case does not name what decides on it")
            if isinstance(model, CompiledContents) and len(model.program.inputs) != len(names):
                raise fields.wrong("a case takes other inputs")
            found.append((key, model))
        return CasesContents(names, by_value, by_shape, tuple(found))

    # ---- parameters -----------------------------------------------------------------------------

    def array(self, fields: Fields) -> Array:
        """An array in the mapped file."""
        shape = tuple(fields.integers("shape"))
        if fields.text("dtype") == "string":
            return _strings(fields, shape)
        dtype = _dtype(fields).numpy
        offset, count = fields.integer("offset"), math.prod(shape)
        if offset % ALIGNMENT or offset + count * dtype.itemsize > len(self._params):
            raise fields.wrong(f"a parameter at {offset} does not lie in {PARAMS}")
        if not count:
            return np.empty(shape, dtype)
        raw = np.frombuffer(self._params, np.uint8, count * dtype.itemsize, offset)
        array = raw.view(dtype).reshape(shape)
        if self._verify:
            self._check(array, fields)
        return array

    def _check(self, array: Array, fields: Fields) -> None:
        """Check an array's checksum; in files of earlier versions, that of all parameters, once."""
        if "crc" in fields:
            if checksum_of(array) != fields.integer("crc"):
                raise self._file.refusal(f"{PARAMS} in it is damaged")
        elif not self._is_checked:
            self._file.checked(PARAMS)
            self._is_checked = True


class _Texts(Mapping[str, str]):
    """Texts in a container, read on access."""

    def __init__(self, reader: _Reader, members: Mapping[str, str]) -> None:
        self._reader, self._members = reader, members
        for member in members.values():
            reader.require(member)

    def __getitem__(self, name: str) -> str:
        return self._reader.text(self._members[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


_KINDS: dict[str, Callable[[_Reader, Fields], Contents]] = {
    "compiled": _Reader.compiled,
    "hosted": _Reader.hosted,
    "cases": _Reader.cases,
}


def _strings(fields: Fields, shape: tuple[int, ...]) -> Array:
    texts = fields.texts("strings")
    if len(texts) != math.prod(shape):
        raise fields.wrong(f"{len(texts)} strings for the shape {list(shape)}")
    return np.array(texts, object).reshape(shape)


def _dtype(fields: Fields) -> DType:
    try:
        return DType.of(fields.text("dtype"))
    except TilewrightError as error:
        raise fields.wrong(str(error)) from None


def _denormals(fields: Fields) -> Denormals:
    if (text := fields.text("denormals")) not in DENORMALS:
        raise fields.wrong(f"{text!r} is no way to treat denormals")
    return DENORMALS[text]


def _spec(fields: Fields) -> NativeSpec:
    name, dtype = fields.text("name"), _dtype(fields)
    if "kind" not in fields:
        return TensorSpec(name, dtype, _shape(fields, "shape"))
    if (kind := fields.text("kind")) not in LIST_KINDS:
        raise fields.wrong(f"{kind!r} is no kind of input or output")
    return ListSpec(name, LIST_KINDS[kind], dtype, _items(fields))


def _shape(fields: Fields, name: str) -> tuple[Dim, ...]:
    return tuple(_dim(d, fields, _DIM_DEPTH) for d in fields.values(name))


def _items(fields: Fields) -> tuple[Dim, ...] | None:
    return _shape(fields, "items") if "items" in fields else None


def _dim(value: Any, fields: Fields, depth: int) -> Dim:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    parts = cast("list[Any]", value) if isinstance(value, list) else []
    op, a, b = parts if len(parts) == 3 else ("", 0, 0)
    if not isinstance(op, str) or op not in DIM_OPERATIONS or not depth:
        raise fields.wrong(f"{value!r} is no dimension")
    return (op, _dim(a, fields, depth - 1), _dim(b, fields, depth - 1))


def _names_of(spec: NativeSpec) -> set[str]:
    """The symbolic dimensions in the shape of an input or output."""
    dims = spec.shape if isinstance(spec, TensorSpec) else spec.items or ()
    return {n for d in dims for n in _names_in(d)} - {ANY_SIZE}


def _names_in(dim: Dim) -> set[str]:
    if isinstance(dim, tuple):
        return _names_in(dim[1]) | _names_in(dim[2])
    return {dim} if isinstance(dim, str) else set()


def _pair(value: Any, fields: Fields) -> tuple[Any, Any]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    if len(items) != 2:
        raise fields.wrong(f"{value!r} is no pair")
    return items[0], items[1]


# ---- consistency --------------------------------------------------------------------------------


def _checked_program(program: Program, fields: Fields) -> Program:
    outputs = program.outputs
    direct = [outputs[k] for k in program.direct if k < len(outputs)]
    if sorted((*program.direct, *program.records)) != list(range(len(outputs))):
        raise fields.wrong("it says not of every output where it comes from")
    for k, at in program.records.items():
        if at + words_in_record(outputs[k]) > program.record_words:
            raise fields.wrong(f"output {outputs[k].name} is not in the record")
    if lists := [s.name for s in direct if isinstance(s, ListSpec)]:
        raise fields.wrong(f"output {lists[0]} is a list that is not in the record")
    known = {n for s in program.inputs for n in _names_of(s)}
    asked = {n for s in direct for n in _names_of(s)}
    if unknown := sorted((asked | set(program.dims)) - known):
        raise fields.wrong(f"no input determines the dimension {', '.join(unknown)}")
    for message in program.messages:
        _check_message(message, fields)
    return program


def _check_message(message: str, fields: Fields) -> None:
    try:
        message.format(*range(_MESSAGE_VALUES))
    except (ValueError, IndexError, KeyError, AttributeError):
        raise fields.wrong(f"{message!r} is no message") from None


def _key(fields: Fields) -> CaseKey:
    values = [_pair(p, fields) for p in fields.values("values")]
    shapes = [_pair(p, fields) for p in fields.values("shapes")]
    return (
        tuple((str(name), _value(v, fields, _VALUE_DEPTH)) for name, v in values),
        tuple((str(name), _sizes(s, fields)) for name, s in shapes),
    )


def _sizes(value: Any, fields: Fields) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise fields.wrong(f"{value!r} is no shape")
    return tuple(map(fields.natural, cast("list[Any]", value)))


def _value(value: Any, fields: Fields, depth: int) -> Any:
    if isinstance(value, list) and depth:
        return tuple(_value(v, fields, depth - 1) for v in cast("list[Any]", value))
    tensor = Fields(value, "value", fields.wrong)
    shape, dtype = tuple(tensor.integers("shape")), tensor.text("dtype")
    strings = tuple(tensor.texts("strings")) if "strings" in tensor else None
    try:
        data = strings or bytes.fromhex(tensor.text("hex"))
        size = 1 if strings is not None else np.dtype(dtype).itemsize
    except (ValueError, TypeError):
        raise fields.wrong("the value of an input is not written in hex") from None
    if len(data) != math.prod(shape) * size:
        raise fields.wrong(f"the value of an input is no {dtype}{list(shape)}")
    return (shape, dtype, data)
