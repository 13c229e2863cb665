"""Compiled models as libraries for C: an object file, an archive, or a shared library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.codegen import (
    PARAMS,
    Data,
    Interface,
    Tensor,
    archive,
    backend_of,
    merge,
)
from tilewright.models.header import header
from tilewright.runtime import ListSpec, NativeSpec, Program, TargetInfo, TensorSpec
from tilewright.support.errors import UserError
from tilewright.support.files import replacing, text_path
from tilewright.target import Target

_ALIGNMENT: Final = 64
#: Code reaches its constants over distances of 31 bits.
_LARGEST: Final = 3 << 29
_SOURCE: Final = ".c"
_KINDS: Final = (".o", ".a", ".so", _SOURCE)
_LINKERS: Final = ("cc", "gcc", "clang", "ld", "ld.lld")

Path_ = str | os.PathLike[str]


def export_library(
    program: Program,
    constants: Sequence[Any],
    pool: bytes,
    target: TargetInfo,
    path: Path_,
    header_path: Path_ | None,
    name: str | None,
    source: str = "",
) -> None:
    """Write a library of the kind that `path` ends in, and its header.

    `source` is the program's code, where its target has it as text; only that can be a C file.
    """
    place = Path(text_path(path))
    header_path = None if header_path is None else text_path(header_path)
    if place.suffix not in _KINDS:
        raise UserError(
            f"cannot export to {place}",
            reason=f"it is not clear what a file {place.name!r} shall be",
            remedy=f"end its name in {', '.join(_KINDS)}",
        )
    if header_path is not None and os.path.realpath(header_path) == os.path.realpath(place):
        raise UserError(
            f"cannot export to {place}",
            reason="the library and its header have the same name",
            remedy=f"name the header {place.with_suffix('.h')}",
        )
    inputs, outputs = _tensors("input", program.inputs), _tensors("output", program.outputs)
    places = _places(constants)
    model = _interface(program, inputs, outputs, _prefix(name, place), places[:-1], target)
    if place.suffix == _SOURCE:
        model = replace(model, offers_dlpack=False)
        _write_source(place, model, source, constants, target)
    else:
        code = _object(model, program, constants, places, pool, target)
        _WRITERS[place.suffix](place, code, model)
    if header_path is not None:
        with replacing(header_path) as file:
            file.write(header(model, inputs, outputs).encode())


def _tensors(role: str, specs: Sequence[NativeSpec]) -> list[TensorSpec]:
    """The specs, if all are of tensors."""
    for spec in specs:
        if isinstance(spec, ListSpec):
            raise UserError(
                "cannot export the model as a library",
                reason=f"{role} {spec} is no tensor, and libraries take and give arrays",
                remedy="pass tensors in and out; inside of the model there may be sequences",
            )
    return [s for s in specs if isinstance(s, TensorSpec)]


def _is_c_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None


def _prefix(name: Any, place: Path) -> str:
    if name is not None and not (isinstance(name, str) and _is_c_name(name)):
        raise UserError(f"{name!r} cannot begin the names of C functions", remedy="use letters")
    found: str = name or re.sub(r"\W", "_", place.stem.removeprefix("lib"), flags=re.ASCII)
    return found if not found[:1].isdigit() else f"m{found}"


def _places(constants: Sequence[Any]) -> list[int]:
    """Where each constant begins, and where the last one ends."""
    places = [0]
    for array in constants:
        places.append(places[-1] + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
    if places[-1] > _LARGEST:
        raise UserError(
            "cannot export the model as a library",
            reason=f"its constants take {places[-1] / 1e9:.1f} GB, which code cannot reach over",
            remedy="save it as an artifact: model.save(path)",
        )
    return places


def _interface(
    program: Program,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    prefix: str,
    places: Sequence[int],
    target: TargetInfo,
) -> Interface:
    return Interface(
        prefix,
        program.name,
        tuple(map(_tensor, inputs)),
        tuple(map(_tensor, outputs)),
        program.dims,
        program.direct,
        program.records,
        program.messages,
        program.origins,
        tuple(places),
        may_use_amx="amx-tile" in target.features and "linux" in target.triple,
        denormals=program.denormals,
    )


def _tensor(spec: TensorSpec) -> Tensor:
    return Tensor(spec.name, spec.dtype, spec.shape)


def _object(
    model: Interface,
    program: Program,
    constants: Sequence[Any],
    places: Sequence[int],
    pool: bytes,
    target: TargetInfo,
) -> bytes:
    glue = backend_of(Target.of(target.text)).library(model, target.triple)
    parts: list[bytes | memoryview] = []
    for array in constants:
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        parts.append(bytes(-array.nbytes % _ALIGNMENT))
    data = Data(PARAMS, parts, places[-1])
    return merge([glue, *program.objects, pool], data, model.exported)


# ---- kinds of files -----------------------------------------------------------------------------


def _write_source(
    place: Path, model: Interface, source: str, constants: Sequence[Any], target: TargetInfo
) -> None:
    parts = backend_of(Target.of(target.text)).library_source(model, source, constants)
    with replacing(place) as file:
        for part in parts:
            file.write(part.encode())


def _write_object(place: Path, code: bytes, model: Interface) -> None:
    del model
    with replacing(place) as file:
        file.write(code)


def _write_archive(place: Path, code: bytes, model: Interface) -> None:
    with replacing(place) as file:
        file.write(archive(f"{model.prefix}.o", code, model.exported))


def _write_shared(place: Path, code: bytes, model: Interface) -> None:
    linker = next(filter(None, map(shutil.which, _LINKERS)), None)
    if linker is None:
        raise UserError(
            f"cannot write {place}",
            reason=f"a shared library needs a linker, and none of {', '.join(_LINKERS)} is here",
            remedy="install a C compiler, or export to .a or .o, which need none",
        )
    with tempfile.TemporaryDirectory() as folder, replacing(place) as file:
        source, made = Path(folder, f"{model.prefix}.o"), Path(folder, "library.so")
        source.write_bytes(code)
        _link(linker, source, made, place)
        with open(made, "rb") as linked:
            shutil.copyfileobj(linked, file)
        os.fchmod(file.fileno(), 0o755)


def _link(linker: str, source: Path, made: Path, place: Path) -> None:
    has_driver = not Path(linker).name.startswith("ld")
    options = ["-Wl,-z,noexecstack", "-lpthread"] if has_driver else ["-z", "noexecstack"]
    command = [linker, "-shared", "-o", str(made), str(source), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise UserError(
            f"cannot write {place}",
            reason=f"{linker} failed: {run.stderr.strip()[-500:]}",
            remedy="export to .a or .o, and link it with the tools of its target",
        )


_WRITERS = {".o": _write_object, ".a": _write_archive, ".so": _write_shared}
