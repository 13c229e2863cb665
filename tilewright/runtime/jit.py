"""Loads object code into this process.

ELF files are linked here (`image`): a model loads in milliseconds, and processes that only run
models need not load LLVM, which takes 40 MB of memory. Other files are linked by LLVM. Two choices
are deliberate, and measured in `tests/runtime/test_jit.py`:

- One JIT for each piece of code. A shared one keeps some 10 KB for every library it ever held, and
  grows slower with each; separate ones cost under a millisecond and free everything.
- JITLink rather than RuntimeDyld: it places all sections of a file in one block and reaches libc
  through stubs, so that small-model code works wherever the system allocates it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from tilewright.runtime.image import Image, Part, image_of
from tilewright.runtime.objectfile import ObjectNames, names_of
from tilewright.support.errors import InternalError, UserError, nearest

_ARCHITECTURES = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}
# Undefined functions are looked up in the process, then in these libraries.
_SYSTEM_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")

#: Frees the memory.
Unload = Callable[[], object]


class LoadedCode:
    """Object code made callable in this process.

    `symbols` are the addresses of functions that the code calls and that are not in libc. The
    memory is freed with this object: whoever keeps an address must keep the object as well.
    """

    def __init__(self, objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> None:
        names = [names_of(code) for code in objects]
        _check_architecture(names)
        defined = set[str]().union(*(n.defined for n in names))
        needed = set[str]().union(*(n.needed for n in names)) - defined
        imports = _resolve(needed, symbols or {})
        image = image_of(objects, mmap.PAGESIZE) if sys.platform == "linux" else None
        self._addresses, unload = (
            _link(objects, imports, defined) if image is None else _put_in_memory(image, imports)
        )
        self._unload = weakref.finalize(self, unload)
        # Not at exit: a daemon thread may still be running the code.
        self._unload.atexit = False

    def address(self, name: str) -> int:
        """The address of the function or variable `name`."""
        if not self._unload.alive:
            raise InternalError(f"cannot look up {name}", reason="its code was unloaded")
        if name not in self._addresses:
            raise InternalError(
                f"cannot look up {name}",
                reason=f"the loaded code does not define it; {nearest(name, self._addresses)}",
            )
        return self._addresses[name]

    def close(self) -> None:
        """Frees the code's memory now. Its functions must not be running, nor be called again."""
        self._unload()


def _check_architecture(names: Iterable[ObjectNames]) -> None:
    here = platform.machine()
    here = _ARCHITECTURES.get(here, here)
    for found in names:
        if found.architecture != here:
            raise UserError(
                f"cannot load object code for {found.architecture}",
                reason=f"this process runs on {here}",
                remedy="compile the model for this machine",
            )


def _resolve(needed: set[str], given: Mapping[str, int]) -> dict[str, int]:
    found = {name: given.get(name) or _process_address(name) for name in needed}
    missing = sorted(name for name, address in found.items() if address is None)
    if missing:
        raise UserError(
            f"cannot load object code: undefined symbols {', '.join(missing)}",
            reason="neither the code nor this process defines them",
            remedy="load a library that defines them with ctypes.CDLL(path, ctypes.RTLD_GLOBAL)",
        )
    return {name: address for name, address in found.items() if address is not None}


def _process_address(name: str) -> int | None:
    for library in _libraries():
        try:
            function = library[name]
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value
    return None


@cache
def _libraries() -> list[ctypes.CDLL]:
    libraries = [ctypes.CDLL(None)]
    for name in _SYSTEM_LIBRARIES:
        try:
            libraries.append(ctypes.CDLL(name))
        except OSError:
            continue
    return libraries


# ---- linked here --------------------------------------------------------------------------------


def _put_in_memory(image: Image, imports: Mapping[str, int]) -> tuple[dict[str, int], Unload]:
    libc = _libc()
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base: int = libc.mmap(None, image.size, rights, flags, -1, 0)
    if base == ctypes.c_void_p(-1).value:
        raise UserError("there is no memory for code", reason=os.strerror(ctypes.get_errno()))
    unload = partial(libc.munmap, base, image.size)
    try:
        content = image.placed(base, imports)
        ctypes.memmove(base, (ctypes.c_char * image.size).from_buffer(content), image.size)
        for part in image.parts:
            _protect(base, part)
    except BaseException:
        unload()
        raise
    return {name: base + place for name, place in image.symbols.items()}, unload


def _protect(base: int, part: Part) -> None:
    rights = mmap.PROT_READ
    rights |= mmap.PROT_EXEC if part.is_code else 0
    rights |= mmap.PROT_WRITE if part.is_written else 0
    begin, size = base + part.begin, part.end - part.begin
    if _libc().mprotect(begin, size, rights):
        raise UserError(
            "cannot load object code",
            reason=f"the system lets this process make no code: {os.strerror(ctypes.get_errno())}",
            remedy="export the model as a library, which is loaded from its file",
        )
    clear = _process_address("__clear_cache") if part.is_code else None
    if clear is not None:
        # Processors with incoherent instruction caches may hold stale code.
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(clear)(begin, begin + size)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = [address, size, number, number, number, ctypes.c_long]
    libc.mmap.restype = address
    libc.mprotect.argtypes = [address, size, number]
    libc.munmap.argtypes = [address, size]
    return libc


# ---- linked by LLVM -----------------------------------------------------------------------------


def _link(
    objects: Sequence[bytes], imports: Mapping[str, int], exports: Iterable[str]
) -> tuple[dict[str, int], Unload]:
    llvm, machine = _host()
    jit = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
    builder = llvm.JITLibraryBuilder()
    for code in objects:
        builder.add_object_img(code)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    try:
        tracker = builder.link(jit, "code")
    except RuntimeError as error:
        raise InternalError("cannot link object code", reason=str(error).strip()) from None
    return {name: tracker[name] for name in exports}, partial(_close, tracker, jit)


@cache
def _host() -> tuple[Any, Any]:
    """llvmlite's binding, and a target machine of this process (each JIT names its own)."""
    import llvmlite.binding

    llvm: Any = llvmlite.binding
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return llvm, target.create_target_machine(reloc="pic", codemodel="default", jit=True)


def _close(tracker: Any, jit: Any) -> None:
    tracker.close()
    jit.close()
