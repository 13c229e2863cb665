"""Fetches what runs code of other architectures into a folder, without root.

    python tools/fetch_emulators.py build/emulators

QEMU's emulators, of programs and of whole boards, come out of Debian's packages, which are only
unpacked; a C compiler for all architectures comes out of a wheel (`ziglang`), which builds a static
libc for each of them now, so that tests need not. mbedTLS comes as source. Python comes for the
other of the two architectures that most people have, with NumPy out of wheels. What is there is
left alone. Tests that find nothing are skipped.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Architectures, and what Zig calls a system for each.
ARCHITECTURES = {
    "aarch64": ("aarch64-linux-musl",),
    "x86_64": ("x86_64-linux-musl",),
    "arm": ("arm-linux-musleabihf", "-mcpu=cortex_a7"),
    "riscv64": ("riscv64-linux-musl",),
}
_SOURCE = "program.c"
PACKAGE = "qemu-user-static"
#: Emulators of boards, and the packages of the libraries that they are linked with.
BOARDS = {"qemu-system-arm": "qemu-system-arm", "qemu-system-riscv32": "qemu-system-misc"}
LIBRARIES = (
    "libfdt1 libcapstone4 libpmem1 librdmacm1 libibverbs1 libslirp0 libvdeplug2 liburing2"
    " libfuse3-3 libaio1 libndctl6 libdaxctl1 libnl-3-200 libnl-route-3-200"
)


#: What Debian calls the two architectures, and the Python that it has.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
PYTHONS = ("3.11", "3.13")
#: Parts of a Python, and the libraries that it is linked with, by the names that releases have.
PYTHON_PARTS = (
    "python{0}-minimal libpython{0}-minimal libpython{0}-stdlib libc6 libexpat1 zlib1g libssl3"
    " libssl3t64 libffi8 libbz2-1.0 liblzma5 libgcc-s1 libstdc++6 libuuid1 libcrypt1"
)
WHEELS = ("numpy", "ml_dtypes", "pillow")

#: The first release whose mbedTLS speaks TLS 1.3 on both sides.
MBEDTLS_RELEASE = "trixie"


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    missing = [what for what, fetch in _PARTS.items() if not fetch(folder)]
    for what in missing:
        print(f"{what} could not be fetched: tests that need it are skipped", file=sys.stderr)
    return 1 if missing else 0


def _emulators(folder: Path) -> bool:
    return all(_has_emulator(folder, arch) for arch in ARCHITECTURES) or _unpack(folder, PACKAGE)


def _boards(folder: Path) -> bool:
    if all(_find(folder, emulator) for emulator in BOARDS):
        return True
    # Where Debian has a library under another name, the emulator says what is missing.
    for library in LIBRARIES.split():
        _unpack(folder, library)
    return all(_unpack(folder, package) for package in BOARDS.values())


def _has_emulator(folder: Path, arch: str) -> bool:
    return any(_find(folder, f"qemu-{arch}{kind}") for kind in ("", "-static"))


def _find(folder: Path, program: str) -> bool:
    path = os.pathsep.join([str(folder / "usr" / "bin"), os.environ.get("PATH", "")])
    return shutil.which(program, path=path) is not None


def _unpack(folder: Path, package: str) -> bool:
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return False
    # Lists of packages of our own, where the system has none that it lets us use.
    own = [f"-oDir::{name}={folder.resolve() / 'apt'}" for name in ("State::Lists", "Cache")]
    (folder / "apt" / "partial").mkdir(parents=True, exist_ok=True)
    if not _done(["apt-get", "download", package], folder):
        _done(["apt-get", *own, "update"], folder)
        _done(["apt-get", *own, "download", package], folder)
    packages = list(folder.glob(f"{package}_*.deb"))
    unpacked = [_done(["dpkg", "-x", str(p), str(folder)]) for p in packages]
    for path in packages:
        path.unlink()
    shutil.rmtree(folder / "apt", ignore_errors=True)
    return any(unpacked)


def _encryption(folder: Path) -> bool:
    """The sources of mbedTLS, which the runtime without Python serves by."""
    if (folder / "mbedtls").is_dir():
        return True
    if not shutil.which("apt-get"):
        return False
    site = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True
    ).stdout.split()
    debian = next((s for s in site if s.rstrip("/").endswith("/debian")), "")
    apt = (folder / "apt-sources").resolve()
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    # Older releases of Debian have a version without TLS 1.3 for servers.
    line = f"deb-src [signed-by={keys}] {debian} {MBEDTLS_RELEASE} main\n"
    (apt / "sources.list").write_text(line)
    own = {"Etc::sourcelist": "sources.list", "Etc::sourceparts": "none", "State::Lists": "lists"}
    options = [f"-oDir::{name}={apt / place}" for name, place in own.items()]
    _done(["apt-get", *options, "update"], folder)
    fetched = _done(["apt-get", *options, "source", "--download-only", "mbedtls"], apt)
    for tar in apt.glob("mbedtls_*.orig.tar.*"):
        _done(["tar", "xf", str(tar)], apt)
    for sources in apt.glob("mbedtls-*"):
        sources.rename(folder / "mbedtls")
    shutil.rmtree(apt, ignore_errors=True)
    return fetched and (folder / "mbedtls").is_dir()


def _python(folder: Path) -> bool:
    """A Python of the other architecture, with the packages that running models takes."""
    arch = "x86_64" if platform.machine() in ("aarch64", "arm64") else "aarch64"
    return any(_python_of(folder / f"python-{arch}", arch, version) for version in PYTHONS)


def _python_of(place: Path, arch: str, version: str) -> bool:
    if (place / "site" / "numpy").is_dir():
        return True
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return False
    apt = place.resolve() / "apt"
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    own = [f"-oDir::State::Lists={apt / 'lists'}", f"-oDir::Cache={apt}"]
    own += [f"-oAPT::Architecture={DEBIAN[arch]}", f"-oAPT::Architectures::={DEBIAN[arch]}"]
    own += ["-oDir::State::status=/dev/null"]
    _done(["apt-get", *own, "update"], place)
    for package in PYTHON_PARTS.format(version).split():
        _done(["apt-get", *own, "download", package], place)
    for package in place.glob("*.deb"):
        _done(["dpkg", "-x", str(package), str(place / "root")])
        package.unlink()
    shutil.rmtree(apt, ignore_errors=True)
    return (place / "root/usr/bin" / f"python{version}").exists() and _wheels(place, arch, version)


def _wheels(place: Path, arch: str, version: str) -> bool:
    """Packages of another architecture, which are only unpacked."""
    tags = [f"--platform=manylinux{tag}_{arch}" for tag in ("2014", "_2_28")]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--only-binary=:all:", f"--python-version={version}", *tags]
    fetched = _done([*pip, "--dest", str(place / "wheels"), *WHEELS])
    for wheel in (place / "wheels").glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(place / "site")
    shutil.rmtree(place / "wheels", ignore_errors=True)
    return fetched


def _compiler(folder: Path) -> bool:
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "ziglang>=0.13"]
    if not (folder / "ziglang").is_dir() and not _done(
        [sys.executable, "-m", "pip", *install, "--target", str(folder)]
    ):
        return False
    (folder / _SOURCE).write_text("int main(void) { return 0; }\n")
    # It compiles file after file, so that architectures share the processors.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(pool.map(lambda arch: _libc(folder, arch), ARCHITECTURES))


def _libc(folder: Path, arch: str) -> bool:
    """A program is linked, for which the compiler builds all that others need as well."""
    program, cache = folder / f"program-{arch}", str(folder / "cache")
    if program.exists():
        return True
    caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    system = ("-target", *ARCHITECTURES[arch])
    zig = [sys.executable, "-m", "ziglang", "cc", *system, "-O1", "-static"]
    command = [*zig, str(folder / _SOURCE), "-o", str(program), "-lpthread"]
    return _done(command, environment={"PYTHONPATH": str(folder), **caches})


def _done(
    command: list[str], where: Path | None = None, environment: dict[str, str] | None = None
) -> bool:
    env = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=where, env=env, capture_output=True).returncode == 0


_PARTS = {
    "an emulator": _emulators,
    "an emulator of boards": _boards,
    "a C compiler for other architectures": _compiler,
    "a library for encryption": _encryption,
    "a Python of another architecture": _python,
}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
