"""Writes builds of a model to an artifact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.artifact.container import MANIFEST, PARAMS, ContainerWriter
from tilewright.runtime.artifact.contents import (
    Build,
    CaseKey,
    CasesContents,
    CompiledContents,
    HostedContents,
)
from tilewright.runtime.artifact.describe import spec_fields
from tilewright.runtime.artifact.seal import checksum_of
from tilewright.runtime.artifact.sign import Signer
from tilewright.support.dtype import DType
from tilewright.support.files import AnyPath
from tilewright.support.memory import ALIGNMENT, aligned

FORMAT: Final = "tilewright"
VERSION: Final = 1


def write_artifact(
    path: AnyPath,
    builds: Sequence[Build],
    about: Mapping[str, Any],
    signer: Signer | None = None,
) -> None:
    """Write builds of one model for different targets; `about` is information for readers."""
    store = _Store()
    described = [_build(b, store) for b in builds]
    head = {"format": FORMAT, "version": VERSION, **about, "builds": described}
    manifest = json.dumps(head, indent=1).encode()
    with ContainerWriter(path, signer) as file:
        file.add(MANIFEST, [manifest], len(manifest))
        for name, data in store.members.items():
            file.add(name, [data], len(data))
        file.add(PARAMS, store.params(), store.size)


class _Store:
    """Objects, texts and parameters; what builds have in common is stored once."""

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self.size = 0
        self._arrays: list[Array] = []
        self._places: dict[bytes, int] = {}

    def object(self, code: bytes) -> str:
        """The name of the member with this object code, from its digest."""
        name = f"objects/{hashlib.sha256(code).hexdigest()}.o"
        self.members[name] = code
        return name

    def text(self, name: str, text: str) -> str:
        data = text.encode()
        tries = (f"texts/{f'{k}/' if k else ''}{name}" for k in range(1 << 20))
        found = next(n for n in tries if self.members.get(n, data) == data)
        self.members[found] = data
        return found

    def array(self, array: Array) -> dict[str, Any]:
        if array.dtype == object:
            strings = [str(s) for s in array.ravel()]
            return {"dtype": "string", "shape": list(array.shape), "strings": strings}
        array = np.ascontiguousarray(array).reshape(array.shape)
        place = self._place(array)
        dtype = DType.of(array.dtype).name
        entry = {"dtype": dtype, "shape": list(array.shape), "offset": place}
        return {**entry, "crc": checksum_of(array)}

    def _place(self, array: Array) -> int:
        digest = hashlib.sha256(_bytes_of(array)).digest()
        if digest not in self._places:
            self._places[digest] = self.size
            self._arrays.append(array)
            self.size += aligned(array.nbytes)
        return self._places[digest]

    def params(self) -> Iterable[bytes | memoryview]:
        """The parameters, each padded to the start of the next."""
        for array in self._arrays:
            yield _bytes_of(array)
            yield bytes(-array.nbytes % ALIGNMENT)


def _bytes_of(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


# ---- the manifest -------------------------------------------------------------------------------


def _build(build: Build, store: _Store) -> dict[str, Any]:
    target = build.target
    return {
        "target": {
            "text": target.text,
            "triple": target.triple,
            "features": sorted(target.features),
        },
        "memory": dict(build.memory),
        "pool": store.object(build.pool),
        "model": _model(build.contents, store),
    }


def _model(contents: Any, store: _Store) -> dict[str, Any]:
    return _KINDS[type(contents)](contents, store)


def _compiled(contents: CompiledContents, store: _Store) -> dict[str, Any]:
    program, recording = contents.program, contents.recording
    recorder: dict[str, Any] = {}
    if recording is not None:
        recorder = {"object": store.object(recording.code), "words": recording.words}
    return {
        "kind": "compiled",
        "name": program.name,
        "objects": [store.object(code) for code in program.objects],
        "inputs": [spec_fields(s) for s in program.inputs],
        "outputs": [spec_fields(s) for s in program.outputs],
        "dims": list(program.dims),
        "direct": list(program.direct),
        "records": [[k, at] for k, at in program.records.items()],
        "messages": list(program.messages),
        "origins": list(program.origins),
        "calls": list(program.calls),
        "precision": program.precision,
        "denormals": program.denormals,
        "constants": [store.array(a) for a in contents.constants],
        "texts": {name: store.text(name, text) for name, text in contents.texts.items()},
        **({"recorder": recorder} if recorder else {}),
    }


def _hosted(contents: HostedContents, store: _Store) -> dict[str, Any]:
    return {
        "kind": "hosted",
        "graph": store.text("hosted.txt", contents.graph),
        "constants": {name: store.array(a) for name, a in contents.constants.items()},
        "native": {name: _model(part, store) for name, part in contents.native.items()},
    }


def _cases(contents: CasesContents, store: _Store) -> dict[str, Any]:
    return {
        "kind": "cases",
        "names": list(contents.names),
        "by_value": sorted(contents.by_value),
        "by_shape": sorted(contents.by_shape),
        "cases": [{**_key(k), "model": _model(m, store)} for k, m in contents.cases],
    }


_KINDS: dict[type, Callable[[Any, _Store], dict[str, Any]]] = {
    CompiledContents: _compiled,
    HostedContents: _hosted,
    CasesContents: _cases,
}


def _key(key: CaseKey) -> dict[str, Any]:
    values, shapes = key
    return {
        "values": [[name, _value(v)] for name, v in values],
        "shapes": [[name, list(shape)] for name, shape in shapes],
    }


def _value(value: Any) -> Any:
    """The value of an input: a list for a sequence, an object for a tensor."""
    is_tensor = len(value) == 3 and isinstance(value[1], str)
    if not is_tensor:
        return [_value(v) for v in value]
    shape, dtype, data = value
    held = {"hex": data.hex()} if isinstance(data, bytes) else {"strings": list(data)}
    return {"shape": list(shape), "dtype": dtype, **held}
