"""Exports compiled models for machines without an operating system.

NAME.o       the model: code and constants for flash, a static arena, one function
NAME.h       its declaration, and its sizes
NAME.txt     notes for linking
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from tilewright.codegen import PARAMS, DataSymbol, Interface, arena_name, backend_of, merge
from tilewright.models.export import Path_, interface_of, params_of, prefix_of, tensors_of
from tilewright.models.header import c_type, safe_text
from tilewright.runtime import Program, TargetInfo, TensorSpec, names_of
from tilewright.support.elf import ALLOC, NOBITS, WRITE, read_elf
from tilewright.support.errors import UserError
from tilewright.support.files import replacing, text_path
from tilewright.support.memory import ALIGNMENT
from tilewright.target import Target

#: Functions of the compiler's runtime, for operations without instructions on a processor.
_OF_THE_COMPILER: Final = re.compile(
    r"__aeabi_(?!mem|unwind)\w+|__(add|sub|mul|div|neg|(un)?ord|eq|ne|l[te]|g[te]|extend|trunc"
    r"|fix(uns)?|float(un)?|u?div|u?mod|u?divmod|ash[lr]|lshr|cl?z|ct[lz]|popcount)\w*"
)
#: How to give a model static sizes.
_REMEDY: Final = "compile the model with fixed shapes: shapes={...}"


@dataclass(frozen=True)
class Footprint:
    """Bytes of a model: read-only data is in flash, the rest in RAM."""

    code: int
    constants: int
    #: Intermediate values, and the workspaces of kernels.
    arena: int
    #: Other written data.
    other_ram: int
    #: Functions of the compiler's runtime library that the code calls.
    needs: tuple[str, ...] = ()

    @property
    def flash(self) -> int:
        return self.code + self.constants

    @property
    def ram(self) -> int:
        """RAM without inputs, outputs and the stack, which are the caller's."""
        return self.arena + self.other_ram


def export_micro(
    program: Program,
    constants: Sequence[Any],
    target: TargetInfo,
    folder: Path_,
    name: str | None,
) -> Footprint:
    """Write the files of a model into `folder`, which is created; gives its memory sizes."""
    place, machine = Path(text_path(folder)), Target.of(target.text)
    prefix = prefix_of(name, place)
    made = _linked(program, constants, target, prefix)
    _make_folder(place)
    files: dict[str, bytes] = {
        f"{prefix}.o": made.code,
        f"{prefix}.h": _header(made, machine).encode(),
        f"{prefix}.txt": _notes(prefix, made.footprint, machine).encode(),
    }
    for file, content in files.items():
        with replacing(place / file) as opened:
            opened.write(content)
    return made.footprint


def recording_object(
    program: Program, constants: Sequence[Any], target: TargetInfo, recorder: bytes, prefix: str
) -> bytes:
    """The object file of a model with a recording host program, which exports the variable
    `PROGRAM.profile` (`codegen.llvm.profile`)."""
    recorded = replace(program, objects=(recorder, *program.objects[1:]))
    return _linked(recorded, constants, target, prefix, [f"{program.name}.profile"]).code


def kernel_alone(code: bytes, target: Target) -> bytes:
    """The object code of a kernel, merged with the memory functions it calls."""
    names = names_of(code)
    if not names.needed:
        return code
    functions = backend_of(target).memory_functions(names.needed, target)
    return merge([code, functions], DataSymbol(PARAMS, [], 0), names.defined)


class _Linked(NamedTuple):
    """A model as one self-contained object file."""

    code: bytes
    interface: Interface
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    footprint: Footprint


def _linked(
    program: Program,
    constants: Sequence[Any],
    target: TargetInfo,
    prefix: str,
    also: Sequence[str] = (),
) -> _Linked:
    """A model as one object file, which exports its function and the names `also`."""
    machine = Target.of(target.text)
    inputs, outputs = tensors_of("input", program.inputs), tensors_of("output", program.outputs)
    _require_static(program, machine, [*inputs, *outputs])
    model, places = interface_of(program, inputs, outputs, prefix, constants, target)
    needed = {n for code in program.objects for n in names_of(code).needed}
    backend = backend_of(machine)
    around = [backend.firmware(model, machine), backend.memory_functions(needed, machine)]
    data, seen = params_of(constants, places), [f"{prefix}_run", *also]
    code = merge([*around, *program.objects], data, seen)
    footprint = _footprint(code, program)
    _require_alone(footprint, machine)
    return _Linked(code, model, inputs, outputs, footprint)


def _make_folder(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {place}", reason=str(error.strerror)) from None


# ---- refusals ------------------------------------------------------------------------------------


def _require_static(program: Program, target: Target, tensors: Sequence[TensorSpec]) -> None:
    if not target.is_bare:
        raise UserError(
            "cannot export the model for a machine without an operating system",
            reason=f"it was compiled for {target.triple}",
            remedy="compile it for one, such as 'llvm -mcpu=cortex-m4'",
        )
    free = next((t for t in tensors if not all(isinstance(d, int) for d in t.shape)), None)
    if free is not None or program.records or program.dims:
        what = f"{free} has a size" if free is not None else "there are sizes"
        raise UserError(
            "cannot export the model for a machine without an operating system",
            reason=f"{what} that is known only when it runs, and memory is planned beforehand",
            remedy=_REMEDY,
        )


def _require_alone(footprint: Footprint, target: Target) -> None:
    """Refuse code that calls functions of an operating system or a C library."""
    foreign = [n for n in footprint.needs if not _OF_THE_COMPILER.fullmatch(n)]
    if foreign:
        heap = any(n in ("malloc", "realloc", "free") for n in foreign)
        raise UserError(
            f"cannot export the model for {target.cpu}",
            reason=f"its code calls {', '.join(foreign)}, which a C library has",
            remedy=_REMEDY if heap else "choose a processor with floating-point instructions",
        )


# ---- sizes ---------------------------------------------------------------------------------------


def _footprint(code: bytes, program: Program) -> Footprint:
    file = read_elf(code)
    loaded = [s for s in file.sections if s.flags & ALLOC]
    params = sum(s.size for s in loaded if s.name == ".rodata.params")
    read = sum(s.size for s in loaded if not s.flags & WRITE or s.kind != NOBITS) - params
    written = sum(s.size for s in loaded if s.flags & WRITE)
    arena = next((s.size for s in file.symbols if s.name == arena_name(program.name)), 0)
    needs = tuple(sorted(names_of(code).needed))
    return Footprint(read, params, arena, max(0, written - arena), needs)


# ---- notes for users -----------------------------------------------------------------------------


def _header(made: _Linked, target: Target) -> str:
    _, model, inputs, outputs, footprint = made
    name, big = model.prefix, model.prefix.upper()
    return "\n".join(
        [
            f"/* {name}: a model compiled by Tilewright for {target.cpu} ({target.triple}).",
            "   It needs no C library, no heap and no threads; all its memory is static. */",
            f"#ifndef {big}_H\n#define {big}_H\n",
            "#include <stdint.h>\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            "/* Bytes of RAM for intermediate values; of flash for code and for constants. */",
            f"#define {big}_ARENA_BYTES {footprint.arena}",
            f"#define {big}_CODE_BYTES {footprint.code}",
            f"#define {big}_CONSTANT_BYTES {footprint.constants}\n",
            *_sizes(big, "INPUT", inputs),
            *_sizes(big, "OUTPUT", outputs),
            "",
            _run(model, inputs, outputs),
            "",
            "#ifdef __cplusplus\n}\n#endif\n",
            "#endif\n",
        ]
    )


def _sizes(big: str, kind: str, specs: Sequence[TensorSpec]) -> list[str]:
    lines: list[str] = []
    for k, spec in enumerate(specs):
        lines.append(f"/* {kind.lower()} {k}: {safe_text(str(spec))} */")
        lines.append(f"#define {big}_{kind}_{k}_BYTES {_bytes(spec)}")
    return lines


def _bytes(spec: TensorSpec) -> int:
    size = spec.dtype.itemsize
    for extent in spec.shape:
        assert isinstance(extent, int)
        size *= extent
    return size


def _run(model: Interface, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    takes = [f"const {c_type(s.dtype)} *input_{k}" for k, s in enumerate(inputs)]
    takes += [f"{c_type(s.dtype)} *output_{k}" for k, s in enumerate(outputs)]
    lines = ["Runs the model on tensors without gaps; not from two places at once."]
    lines.append("Arrays are aligned as C aligns their elements. It returns 0, or the number of:")
    lines += [f"    {k}  {safe_text(m)}" for k, m in enumerate(model.messages, start=1)]
    if not model.messages:
        lines[-1] = "Arrays are aligned as C aligns their elements. It returns 0."
    body = "\n   ".join(lines)
    return f"/* {body} */\nint32_t {model.prefix}_run({', '.join(takes)});"


def _notes(name: str, footprint: Footprint, target: Target) -> str:
    needs = ", ".join(footprint.needs)
    runtime = (
        f"It calls functions of the compiler's own library: {needs}.\n"
        "Link with libgcc (-lgcc) or compiler-rt, which every toolchain for this machine has.\n"
        if needs
        else "It calls nothing: neither a C library nor the compiler's own is needed.\n"
    )
    return f"""{name}: what a linker must know

{name}.o is a relocatable ELF file for {target.triple}, processor {target.cpu}.
The one function that can be seen from outside is {name}_run.

    .text*            {footprint.code:>9,} bytes of code and tables: read only, flash
    .rodata.params    {footprint.constants:>9,} bytes of constants: read only, flash, \
aligned to {ALIGNMENT} bytes
    .bss*             {footprint.ram:>9,} bytes of RAM, of which the arena takes \
{footprint.arena:,}; zeroed at start

A linker script that places .text*, .rodata* and .bss* places all of it. Inputs, outputs and the
stack are the firmware's own; functions keep up to {target.stack_limit:,} bytes of buffers each on
the stack, one function at a time, beside what registers they save.

{runtime}"""
