"""Libraries for macOS and Windows: archives and object files, read by an independent reader."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import lief
import numpy as np
import pytest

import tilewright as tw
from tests.networks import mlp
from tilewright.graph import Builder

SYSTEMS = [
    "x86_64-pc-windows-gnu",
    "x86_64-pc-windows-msvc",
    "aarch64-pc-windows-msvc",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
]
#: What the systems themselves define, of all that code may ask for.
WINDOWS = {
    *"AcquireSRWLockExclusive ReleaseSRWLockExclusive SleepConditionVariableSRW".split(),
    *"WakeConditionVariable CreateThread WaitForSingleObject CloseHandle SwitchToThread".split(),
    *"GetCurrentProcessId GetActiveProcessorCount QueryPerformanceCounter".split(),
    *"QueryPerformanceFrequency __stdio_common_vsprintf _aligned_malloc _aligned_free".split(),
    *"memcpy memset memmove malloc realloc free _tls_index _fltused __chkstk ___chkstk_ms".split(),
    "__main",  # which MinGW calls at the beginning of any function `main`
}
MACOS = {
    *"_pthread_create _pthread_join _pthread_mutex_init _pthread_mutex_lock".split(),
    *"_pthread_mutex_unlock _pthread_cond_init _pthread_cond_wait _pthread_cond_signal".split(),
    *"_pthread_sigmask _sigfillset _sched_yield _clock_gettime _getpid _sysconf _snprintf".split(),
    *"_posix_memalign _free _malloc _realloc _memcpy _memset _memmove _bzero".split(),
    *"__tlv_bootstrap ___memset_pattern16 _memset_pattern16 ___bzero".split(),
}


class Contents(NamedTuple):
    """What an object file defines for others, and what it asks for."""

    defined: list[str]
    wanted: set[str]
    sections: list[bytes]


def members(path: Path) -> dict[int, bytes]:
    """The files of an archive, by the place of their headers; its index is the first of them."""
    raw, place, found = path.read_bytes(), 8, dict[int, bytes]()
    assert raw[:8] == b"!<arch>\n"
    while place < len(raw):
        header, start = raw[place : place + 60].decode(), place + 60
        assert header.endswith("`\n")
        size = int(header[48:58])
        skipped = int(header[3:16]) if header.startswith("#1/") else 0
        found[place] = raw[start + skipped : start + size]
        place = start + size + size % 2
    return found


def index_of(index: bytes, triple: str) -> list[tuple[str, int]]:
    """The names of an archive's index, and where the files that define them begin."""
    if "apple" in triple:
        (size,) = struct.unpack_from("<I", index)
        text = index[8 + size :]
        pairs = struct.iter_unpack("<II", index[4 : 4 + size])
        return [(text[at : text.index(b"\0", at)].decode(), place) for at, place in pairs]
    (count,) = struct.unpack_from(">I", index)
    places = struct.unpack_from(f">{count}I", index, 4)
    names = index[4 + 4 * count :].split(b"\0")[:count]
    return [(n.decode(), place) for n, place in zip(names, places, strict=True)]


def contents(code: bytes, triple: str) -> Contents:
    if "apple" in triple:
        files = lief.MachO.parse(list(code))
        assert files is not None
        binary: Any = files.at(0)
        shared: list[Any] = [s for s in binary.symbols if s.raw_type & 1]
        own = [s for s in shared if s.numberof_sections]
    else:
        binary = lief.COFF.parse(list(code))
        shared = [s for s in binary.symbols if s.is_external or s.is_weak_external]
        own = [s for s in shared if s.section_idx > 0]
    assert binary is not None
    sections = [bytes(s.content) for s in binary.sections]
    names = [str(s.name) for s in own]
    return Contents(names, {str(s.name) for s in shared} - set(names), sections)


@pytest.fixture(scope="module", params=SYSTEMS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    triple: str = request.param
    folder = tmp_path_factory.mktemp("systems")
    model = tw.compile(mlp(), f"llvm -mtriple={triple} -num-cores=4")
    model.export_library(folder / "net.a", folder / "net.h")
    return triple, model, folder


def test_what_is_not_defined_is_the_systems_own(library: Any) -> None:
    triple, _, folder = library
    (_, index), *files = members(folder / "net.a").items()
    read = {place: contents(code, triple) for place, code in files}
    defined = Counter(name for file in read.values() for name in file.defined)
    wanted = set[str]().union(*(file.wanted for file in read.values()))
    assert wanted - set(defined) <= (MACOS if "apple" in triple else WINDOWS)
    lead = "_" if "apple" in triple else ""
    users = {f"{lead}net_{n}" for n in ("run", "init", "free", "error", "run_dlpack")}
    assert users <= set(defined)
    assert all(name.startswith(f"{lead}net.") for name in set(defined) - users)
    assert all(defined[name] == 1 for name in users)
    for name, place in index_of(index, triple):
        assert name in read[place].defined
    assert {name for name, _ in index_of(index, triple)} == set(defined)


def test_constants_are_as_they_were(library: Any) -> None:
    triple, model, folder = library
    *_, data = members(folder / "net.a").values()
    file = contents(data, triple)
    assert len(file.defined) == 1 and not file.wanted
    held = file.sections[0]
    for constant in model._constants:
        assert np.ascontiguousarray(constant).tobytes() in held


def test_kinds_of_files(library: Any, tmp_path: Path) -> None:
    triple, model, _ = library
    with pytest.raises(tw.UserError, match=r"several object files\n  remedy: export to .*net\.a"):
        model.export_library(tmp_path / "net.o")
    with pytest.raises(tw.UserError, match=f"{triple} has no such files"):
        model.export_library(tmp_path / "net.so")
    if "windows" in triple:
        model.export_library(tmp_path / "net.lib")
        model.export_library(tmp_path / "net.a")
        assert (tmp_path / "net.lib").read_bytes() == (tmp_path / "net.a").read_bytes()


def test_models_without_constants(tmp_path: Path) -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", ("n", 3))))
    for triple in SYSTEMS:
        tw.compile(b.build(), f"llvm -mtriple={triple}").export_library(tmp_path / "net.a")
        for code in list(members(tmp_path / "net.a").values())[1:]:
            contents(code, triple)
