"""Builds the runtime: a static program, or a library for C and C++."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tilewright.codegen import Member, archive
from tilewright.runtime import names_of
from tilewright.support.errors import UserError
from tilewright.support.files import replacing, text_path
from tilewright.target import Target, system_of

SOURCE: Final = Path(__file__).parent / "source"
HEADERS: Final = ("tilewright.h", "tilewright.hpp")
_PROGRAM: Final = "main.c"
_WARNINGS: Final = ("-Wall", "-Wextra", "-pedantic", "-Werror")
_COMPILING: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-ffunction-sections", "-fdata-sections")
_LINKING: Final = ("-static", "-s", "-Wl,--gc-sections", "-lm", "-lpthread")
#: Architectures whose code the runtime can load, and what Zig calls a system for each; ARM's is the
#: least processor that has what our code for it asks for.
_ZIG: Final[dict[str, tuple[str, ...]]] = {
    "x86_64": ("x86_64-linux-musl",),
    "aarch64": ("aarch64-linux-musl",),
    "arm": ("arm-linux-musleabihf", "-mcpu=cortex_a8"),
    "riscv64": ("riscv64-linux-musl",),
}
_HERE: Final = ("cc", "gcc", "clang")


def build_runtime(
    path: str | os.PathLike[str],
    target: str = "llvm",
    *,
    mbedtls: str | os.PathLike[str] | None = None,
    compiler: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the runtime for a target, and return the files.

    A path that ends in `.a` gets the library, with its headers beside it; any other the program
    that runs models, which is static and depends on nothing. `mbedtls` is a folder with the sources
    of mbedTLS 3.6, which does the encryption: with it, the program also serves its machine to
    remote clients. `compiler` is a C compiler's command for the target; without it, Zig is used
    (the package `ziglang`), or a compiler of the system's.
    """
    place = Path(text_path(path))
    words = compiler_for(target, place) if compiler is None else list(compiler)
    env = {**os.environ, **(environment or {})}
    sources = runtime_sources()
    options: list[str] = []
    if mbedtls is not None:
        encryption = Path(text_path(mbedtls)).resolve()
        options, more = _serving(encryption, place)
        sources += more
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        objects = _compiled(words, sources, options, Path(folder), place, env)
        if place.suffix == ".a":
            pairs = zip(objects, sources, strict=True)
            return _write_library(place, [o for o, s in pairs if s.name != _PROGRAM])
        made = Path(folder, "program")
        _run([*words, *map(str, objects), "-o", str(made), *_LINKING], place, env)
        with replacing(place) as file:
            file.write(made.read_bytes())
            os.fchmod(file.fileno(), 0o755)
    return [place]


def runtime_sources() -> list[Path]:
    """The C files of a program that runs models, without those that serve."""
    return sorted([*SOURCE.glob("*.c"), *SOURCE.glob("signing/*.c")])


def compiler_for(target: str, place: Path) -> list[str]:
    """The command of a C compiler that makes static programs for a target."""
    made = Target.of(target)
    arch = "arm" if made.arch.startswith("arm") else made.arch
    if arch not in _ZIG or system_of(made.triple) != "linux":
        raise UserError(
            f"cannot write {place}",
            reason=f"there is no runtime for {made.triple}",
            remedy=f"choose Linux on {', '.join(_ZIG)}, or export a library with the model in it",
        )
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", *_ZIG[arch]]
    names = _HERE if made.arch == Target.of("llvm").arch else _cross_compilers(arch)
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UserError(
            f"cannot write {place}",
            reason=f"it takes a C compiler, and none of {', '.join(names)} is here",
            remedy="pip install ziglang",
        )
    return [found]


def _cross_compilers(arch: str) -> list[str]:
    """What packages call compilers for other machines."""
    return [f"{arch}-linux-{libc}{'eabihf' * (arch == 'arm')}-gcc" for libc in ("musl", "gnu")]


def _serving(encryption: Path, place: Path) -> tuple[list[str], list[Path]]:
    """Options and further sources of a program that serves its machine."""
    if not (encryption / "include" / "mbedtls" / "ssl.h").is_file():
        raise UserError(
            f"cannot write {place}",
            reason=f"{encryption} does not hold the sources of mbedTLS",
            remedy="name the folder of mbedTLS 3.6 that has `include` and `library` in it",
        )
    if place.suffix == ".a":
        raise UserError(f"cannot write {place}", reason="the library does not serve, a program can")
    own = sorted((SOURCE / "server").glob("*.c"))
    return serving_options(encryption), [*own, *sorted((encryption / "library").glob("*.c"))]


def serving_options(encryption: Path) -> list[str]:
    """What a compiler is told of a program that serves, with the sources of mbedTLS."""
    config = SOURCE / "server" / "mbedtls_config.h"
    folders = [f"-I{encryption / name}" for name in ("include", "library")]
    return ["-DTILEWRIGHT_SERVE", f'-DMBEDTLS_CONFIG_FILE="{config}"', *folders]


def _compiled(
    words: Sequence[str],
    sources: Sequence[Path],
    options: Sequence[str],
    folder: Path,
    place: Path,
    env: Mapping[str, str],
) -> list[Path]:
    objects = [folder / f"{k}_{source.stem}.o" for k, source in enumerate(sources)]

    def warnings(source: Path) -> tuple[str, ...]:
        return _WARNINGS if source.is_relative_to(SOURCE) else ()

    commands = [
        [*words, *_COMPILING, *options, *warnings(source), "-c", str(source), "-o", str(made)]
        for source, made in zip(sources, objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(_run, command, place, env) for command in commands]:
            done.result()
    return objects


def _write_library(place: Path, objects: Sequence[Path]) -> list[Path]:
    with replacing(place) as file:
        file.write(archive([_member(o) for o in objects]))
    headers = [place.parent / name for name in HEADERS]
    for header in headers:
        with replacing(header) as file:
            file.write((SOURCE / header.name).read_bytes())
    return [place, *headers]


def _member(path: Path) -> Member:
    code = path.read_bytes()
    return Member(path.name, code, sorted(names_of(code).defined))


def _run(command: Sequence[str], place: Path, env: Mapping[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise UserError(
            f"cannot write {place}", reason=f"the compiler failed: {done.stderr.strip()[-500:]}"
        )
