"""Links shared libraries by the system's linker, a cross compiler, or ziglang."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tilewright.codegen import Member
from tilewright.runtime import TargetInfo
from tilewright.support.errors import UserError
from tilewright.target import System, Target, system_of

#: The suffixes of shared libraries.
SHARED: Final[dict[System, str]] = {
    "linux": ".so",
    "android": ".so",
    "darwin": ".dylib",
    "windows": ".dll",
}
_HERE: Final = ("cc", "gcc", "clang", "ld", "ld.lld")
#: Zig's names of processors, where they differ.
_ZIG_CPUS: Final = {"armv7": "arm", "arm64": "aarch64"}


@contextmanager
def linked(
    place: Path, files: Sequence[Member], exported: Sequence[str], target: TargetInfo
) -> Generator[IO[bytes]]:
    """The shared library of these object files, which exports `exported`, as an open file."""
    linker = _linker_for(place, target.triple)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        objects = [Path(folder, f"{k}.o") for k in range(len(files))]
        for path, file in zip(objects, files, strict=True):
            path.write_bytes(file.code)
        made = Path(folder, place.name)  # a DLL is loaded by the name it was linked as
        options = _options(linker, place, exported, Path(folder), target.triple)
        _link([*linker, "-shared", "-o", str(made), *map(str, objects), *options], place)
        with open(made, "rb") as library:
            yield library


def _linker_for(place: Path, triple: str) -> list[str]:
    own = _HERE if _is_here(triple) else ()
    names = [*own, *_cross_compilers(triple)]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None and system_of(triple) != "android":
        return [sys.executable, "-m", "ziglang", "cc", "-target", _zig_triple(triple)]
    raise UserError(
        f"cannot write {place}",
        reason=f"a shared library needs a linker, and none of {', '.join(names)} is here",
        remedy="install a C compiler (pip install ziglang will do), or export to .a,"
        " which needs none",
    )


def _is_here(triple: str) -> bool:
    """Whether this machine's own linker can link for a target."""
    here = Target.of("llvm")
    there = Target.of(f"llvm -mtriple={triple}")
    same_libc = ("musl" in triple) == ("musl" in here.triple)
    same_system = system_of(triple) == system_of(here.triple)
    return there.arch == here.arch and same_system and same_libc


def _cross_compilers(triple: str) -> list[str]:
    """The usual names of cross compilers for a target."""
    arch, *_, environment = triple.split("-")
    if system_of(triple) == "windows":
        return [f"{arch}-w64-mingw32-gcc"]
    if system_of(triple) == "darwin":
        return []
    return [f"{'arm' if arch.startswith('arm') else arch}-linux-{environment}-gcc"]


def _zig_triple(triple: str) -> str:
    arch, *_, environment = triple.split("-")
    system = {"darwin": "macos", "windows": "windows-gnu"}.get(system_of(triple) or "")
    return f"{_ZIG_CPUS.get(arch, arch)}-{system or f'linux-{environment}'}"


def _options(
    linker: Sequence[str], place: Path, exported: Sequence[str], folder: Path, triple: str
) -> list[str]:
    system = system_of(triple)
    if system == "windows":
        names = folder / "library.def"
        names.write_text("EXPORTS\n" + "".join(f"  {name}\n" for name in exported))
        return [str(names)]
    if system == "darwin":
        return [f"-Wl,-install_name,@rpath/{place.name}"]
    is_bare = Path(linker[0]).name.startswith("ld")
    return ["-z", "noexecstack"] if is_bare else ["-Wl,-z,noexecstack", "-lpthread"]


def _link(command: Sequence[str], place: Path) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise UserError(
            f"cannot write {place}",
            reason=f"{command[0]} failed: {run.stderr.strip()[-500:]}",
            remedy="export to .a or .o, and link it with the tools of its target",
        )
