"""Exports compiled models as C libraries: an object file, an archive, or a shared library."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.codegen import (
    PARAMS,
    DataSymbol,
    Interface,
    Member,
    Tensor,
    archive,
    backend_of,
    members,
)
from tilewright.models.header import header
from tilewright.models.linking import SHARED, linked
from tilewright.runtime import ListSpec, NativeSpec, Program, TargetInfo, TensorSpec
from tilewright.support.errors import UserError
from tilewright.support.files import replacing, text_path
from tilewright.support.memory import ALIGNMENT, aligned
from tilewright.target import Target, system_of

#: Most bytes of constants: code addresses them by 32-bit signed offsets.
_LARGEST: Final = 3 << 29
_SOURCE: Final = ".c"
_WINDOWS_ARCHIVE: Final = ".lib"

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
    """Write a library of the kind given by the suffix of `path`, and its header.

    `source` is the program's source code, on targets that have it; only that can become a C file.
    """
    place = Path(text_path(path))
    header_path = None if header_path is None else text_path(header_path)
    _check_kind(place, target)
    if header_path is not None and os.path.realpath(header_path) == os.path.realpath(place):
        raise UserError(
            f"cannot export to {place}",
            reason="the library and its header have the same name",
            remedy=f"name the header {place.with_suffix('.h')}",
        )
    inputs, outputs = tensors_of("input", program.inputs), tensors_of("output", program.outputs)
    model, places = interface_of(
        program, inputs, outputs, prefix_of(name, place), constants, target
    )
    if place.suffix == _SOURCE:
        model = replace(model, offers_dlpack=False)
        _write_source(place, model, source, constants, target)
    else:
        files = _members(model, program, constants, places, pool, target)
        _WRITERS[place.suffix](place, files, model, target)
    if header_path is not None:
        with replacing(header_path) as file:
            file.write(header(model, inputs, outputs).encode())


def _check_kind(place: Path, target: TargetInfo) -> None:
    system = system_of(target.triple)
    kinds = [".o", ".a", *([SHARED[system]] if system else []), _SOURCE]
    if system == "windows":
        kinds.append(_WINDOWS_ARCHIVE)
    if place.suffix in kinds:
        return
    is_known = place.suffix in _WRITERS
    raise UserError(
        f"cannot export to {place}",
        reason=f"{target.triple} has no such files"
        if is_known
        else f"it is not clear what a file {place.name!r} shall be",
        remedy=f"end its name in {', '.join(kinds)}",
    )


def tensors_of(role: str, specs: Sequence[NativeSpec]) -> list[TensorSpec]:
    """The specs, if all are tensors; else an error."""
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


def prefix_of(name: Any, place: Path) -> str:
    if name is not None and not (isinstance(name, str) and _is_c_name(name)):
        raise UserError(f"{name!r} cannot begin the names of C functions", remedy="use letters")
    found: str = name or re.sub(r"\W", "_", place.stem.removeprefix("lib"), flags=re.ASCII)
    return found if not found[:1].isdigit() else f"m{found}"


def _places(constants: Sequence[Any]) -> list[int]:
    """The offset of each constant, and the end of the last one."""
    places = [0]
    for array in constants:
        places.append(places[-1] + aligned(array.nbytes))
    if places[-1] > _LARGEST:
        raise UserError(
            "cannot export the model as a library",
            reason=f"its constants take {places[-1] / 1e9:.1f} GB, which code cannot reach over",
            remedy="save it as an artifact: model.save(path)",
        )
    return places


def interface_of(
    program: Program,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    prefix: str,
    constants: Sequence[Any],
    target: TargetInfo,
) -> tuple[Interface, list[int]]:
    """The interface of a model; and the offsets of its constants, with the end of the last one."""
    places = _places(constants)
    model = Interface(
        prefix,
        program.name,
        tuple(map(_tensor, inputs)),
        tuple(map(_tensor, outputs)),
        program.dims,
        program.direct,
        program.records,
        program.messages,
        program.origins,
        tuple(places[:-1]),
        may_use_amx="amx-tile" in target.features and "linux" in target.triple,
        denormals=program.denormals,
        # The layout of DLPack's structures here is for 64-bit addresses.
        offers_dlpack=Target.of(target.text).pointer_bits == 64,
        offers_tvm_ffi="linux" in target.triple,
    )
    return model, places


def _tensor(spec: TensorSpec) -> Tensor:
    return Tensor(spec.name, spec.dtype, spec.shape)


def _members(
    model: Interface,
    program: Program,
    constants: Sequence[Any],
    places: Sequence[int],
    pool: bytes,
    target: TargetInfo,
) -> list[Member]:
    glue = backend_of(Target.of(target.text)).library(model, target.triple)
    objects = [glue, *program.objects, *([pool] if pool else [])]
    return members(objects, params_of(constants, places), model.exported, model.prefix)


def params_of(constants: Sequence[Any], places: Sequence[int]) -> DataSymbol:
    """The constants as one symbol, each padded to the next one's offset."""
    parts: list[bytes | memoryview] = []
    for array in constants:
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        parts.append(bytes(-array.nbytes % ALIGNMENT))
    return DataSymbol(PARAMS, parts, places[-1])


# ---- kinds of files -----------------------------------------------------------------------------


def _write_source(
    place: Path, model: Interface, source: str, constants: Sequence[Any], target: TargetInfo
) -> None:
    parts = backend_of(Target.of(target.text)).library_source(model, source, constants)
    with replacing(place) as file:
        for part in parts:
            file.write(part.encode())


def _write_object(place: Path, files: list[Member], _: Interface, target: TargetInfo) -> None:
    if len(files) > 1:
        raise UserError(
            f"cannot write {place}",
            reason=f"for {target.triple} a model's code is several object files",
            remedy=f"export to {place.with_suffix('.a')}",
        )
    with replacing(place) as file:
        file.write(files[0].code)


def _write_archive(place: Path, files: list[Member], _: Interface, __: TargetInfo) -> None:
    with replacing(place) as file:
        file.write(archive(files))


def _write_shared(place: Path, files: list[Member], model: Interface, target: TargetInfo) -> None:
    with replacing(place) as file, linked(place, files, model.exported, target) as made:
        shutil.copyfileobj(made, file)
        os.fchmod(file.fileno(), 0o755)


_WRITERS: Final = {
    ".o": _write_object,
    ".a": _write_archive,
    ".lib": _write_archive,
    **dict.fromkeys(SHARED.values(), _write_shared),
}
