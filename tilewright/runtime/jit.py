"""Loading object code into this process.

LLVM's ORC JIT links it. Two choices are deliberate and measured (`tests/runtime/test_jit.py`):

- One JIT for each piece of code. A shared one keeps some 10 KB for every library it ever held, and
  grows slower with each; one apiece costs under a millisecond and gives everything back.
- JITLink rather than RuntimeDyld: it places all sections of a file in one block and reaches libc
  through stubs, so that small-model code works wherever the system puts it.
"""

from __future__ import annotations

import ctypes
import platform
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from tilewright.runtime.objectfile import ObjectNames, names_of
from tilewright.support.errors import InternalError, UserError, nearest

_ARCHITECTURES = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}
# Where functions are looked for that the code itself does not define: the process, then these.
_SYSTEM_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")


class LoadedCode:
    """Object code made callable in this process.

    `symbols` are the addresses of functions that the code calls and that are not part of libc. The
    memory goes back when the object does: whoever keeps an address keeps the object as well.
    """

    def __init__(self, objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> None:
        names = [names_of(code) for code in objects]
        _check_architecture(names)
        defined = set[str]().union(*(n.defined for n in names))
        needed = set[str]().union(*(n.needed for n in names)) - defined
        imports = _resolve(needed, symbols or {})
        tracker, jit = _link(objects, imports, defined)
        self._addresses: dict[str, int] = {name: tracker[name] for name in defined}
        self._unload = weakref.finalize(self, _unload, tracker, jit)
        # At exit the code stays: a thread that the interpreter does not wait for may be inside it.
        self._unload.atexit = False

    def address(self, name: str) -> int:
        """Where the function or variable `name` lies."""
        if not self._unload.alive:
            raise InternalError(f"cannot look up {name}", reason="its code was unloaded")
        if name not in self._addresses:
            raise InternalError(
                f"cannot look up {name}",
                reason=f"the loaded code does not define it; {nearest(name, self._addresses)}",
            )
        return self._addresses[name]

    def close(self) -> None:
        """Frees the code's memory now. Its functions must not run, nor be called any more."""
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


def _link(
    objects: Sequence[bytes], imports: Mapping[str, int], exports: Iterable[str]
) -> tuple[Any, Any]:
    """Returns llvmlite's resource tracker and the JIT that it belongs to."""
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
        return builder.link(jit, "code"), jit
    except RuntimeError as error:
        raise InternalError("cannot link object code", reason=str(error).strip()) from None


@cache
def _host() -> tuple[Any, Any]:
    """llvmlite's binding, and a target machine of this process for the JIT to name its own."""
    import llvmlite.binding

    llvm: Any = llvmlite.binding
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return llvm, target.create_target_machine(reloc="pic", codemodel="default", jit=True)


def _unload(tracker: Any, jit: Any) -> None:
    tracker.close()
    jit.close()
