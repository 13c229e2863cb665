"""Fetches what runs code of other architectures into a folder, without root.

    python tools/fetch_emulators.py build/emulators

QEMU's user-mode emulators come out of Debian's package, which is only unpacked; a C compiler for
all architectures comes out of a wheel (`ziglang`), which builds a static libc for each of them now,
so that tests need not. What is there already is left alone. Tests that find nothing are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ARCHITECTURES = ("aarch64", "x86_64")
PACKAGE = "qemu-user-static"


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    missing = [what for what, fetch in _PARTS.items() if not fetch(folder)]
    for what in missing:
        print(f"{what} could not be fetched: tests that need it are skipped", file=sys.stderr)
    return 1 if missing else 0


def _emulators(folder: Path) -> bool:
    return all(_has_emulator(folder, arch) for arch in ARCHITECTURES) or _unpack(folder)


def _has_emulator(folder: Path, arch: str) -> bool:
    path = os.pathsep.join([str(folder / "usr" / "bin"), os.environ.get("PATH", "")])
    return any(shutil.which(f"qemu-{arch}{kind}", path=path) for kind in ("", "-static"))


def _unpack(folder: Path) -> bool:
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return False
    # Lists of packages of our own, where the system has none that it lets us use.
    own = [f"-oDir::{name}={folder.resolve() / 'apt'}" for name in ("State::Lists", "Cache")]
    (folder / "apt" / "partial").mkdir(parents=True, exist_ok=True)
    if not _done(["apt-get", "download", PACKAGE], folder):
        _done(["apt-get", *own, "update"], folder)
        _done(["apt-get", *own, "download", PACKAGE], folder)
    packages = list(folder.glob(f"{PACKAGE}_*.deb"))
    unpacked = [_done(["dpkg", "-x", str(p), str(folder)]) for p in packages]
    for path in packages:
        path.unlink()
    shutil.rmtree(folder / "apt", ignore_errors=True)
    return any(unpacked)


def _compiler(folder: Path) -> bool:
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "ziglang>=0.13"]
    if not (folder / "ziglang").is_dir() and not _done(
        [sys.executable, "-m", "pip", *install, "--target", str(folder)]
    ):
        return False
    return all(_libc(folder, arch) for arch in ARCHITECTURES)


def _libc(folder: Path, arch: str) -> bool:
    """A program is linked, for which the compiler builds all that others need as well."""
    program, cache = folder / f"program-{arch}", str(folder / "cache")
    if program.exists():
        return True
    source = folder / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-musl", "-O1", "-static"]
    command = [*zig, str(source), "-o", str(program), "-lpthread"]
    return _done(command, environment={"PYTHONPATH": str(folder), **caches})


def _done(
    command: list[str], where: Path | None = None, environment: dict[str, str] | None = None
) -> bool:
    env = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=where, env=env, capture_output=True).returncode == 0


_PARTS = {"an emulator": _emulators, "a C compiler for other architectures": _compiler}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
