"""Settings from the environment.

`config()` reads the `TILEWRIGHT_*` variables each time it is called, so a program (or a test) may
change them at any moment and nothing is read at import.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tilewright.support.errors import UserError

_PREFIX = "TILEWRIGHT_"
_TRUE, _FALSE = {"1", "on", "true", "yes"}, {"0", "off", "false", "no"}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Config:
    """The settings; each field is the variable `TILEWRIGHT_<FIELD>`."""

    #: Keep compiled code on disk between runs.
    cache: bool
    #: Where the on-disk cache lives.
    cache_dir: Path
    #: How many bytes the cache may take; `512M` and `2G` are understood.
    cache_limit: int
    #: Threads of the pool at run time; 0 means one for each core that the process may use.
    num_threads: int
    #: Processes that compile kernels side by side; 0 means as many as there are cores.
    compile_jobs: int
    #: Where reproducers of faults are written; None means the folder for temporary files.
    faults_dir: Path | None
    #: Check the IR after every pass, not only between stages.
    verify: bool
    #: Use the tuning results shipped with the package, on the machines that they are for.
    shipped_records: bool
    #: NVIDIA's assembler: a path; empty to look for it; `off` to do without.
    ptxas: str


def config() -> Config:
    """The settings as the environment has them now."""
    return Config(
        cache=_flag("CACHE", True),
        cache_dir=_path("CACHE_DIR") or _default_cache_dir(),
        cache_limit=_size("CACHE_LIMIT", 2 << 30),
        num_threads=_count("NUM_THREADS", 0),
        compile_jobs=_count("COMPILE_JOBS", 0),
        faults_dir=_path("FAULTS_DIR"),
        verify=_flag("VERIFY", False),
        shipped_records=_flag("SHIPPED_RECORDS", True),
        ptxas=_read("PTXAS"),
    )


def parse_size(text: str) -> int:
    """The bytes that `64K`, `2M` or a plain number mean; `ValueError` if it is no size."""
    text = text.strip().lower().removesuffix("ib").removesuffix("b")
    unit = text[-1:] if text[-1:] in _UNITS else ""
    value = float(text.removesuffix(unit)) * _UNITS[unit]
    if not 0 <= value < 1 << 62:
        raise ValueError(f"size out of range: {text}")
    return int(value)


def format_size(size: int) -> str:
    """The shortest text that `parse_size` reads back as exactly `size`."""
    for unit in ("T", "G", "M", "K"):
        factor = _UNITS[unit.lower()]
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _read(name: str) -> str:
    return os.environ.get(_PREFIX + name, "").strip()


def _flag(name: str, default: bool) -> bool:
    text = _read(name).lower()
    if not text:
        return default
    if text not in _TRUE | _FALSE:
        raise _bad(name, text, "set it to 1 or 0")
    return text in _TRUE


def _count(name: str, default: int) -> int:
    text = _read(name)
    if text and not text.isdecimal():
        raise _bad(name, text, "set it to a whole number, 0 or more")
    return int(text) if text else default


def _size(name: str, default: int) -> int:
    text = _read(name)
    try:
        return parse_size(text) if text else default
    except ValueError:
        raise _bad(name, text, "set it to a number of bytes, such as 512M or 2G") from None


def _path(name: str) -> Path | None:
    text = _read(name)
    try:
        return Path(text).expanduser() if text else None
    except RuntimeError:
        raise _bad(name, text, "name a folder; there is no such user's home") from None


def _default_cache_dir() -> Path:
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "tilewright"
    base = os.environ.get("XDG_CACHE_HOME")
    # expanduser leaves "~" as it is without a home; the cache then fails to open, silently.
    return (Path(base) if base else Path(os.path.expanduser("~/.cache"))) / "tilewright"


def _bad(name: str, text: str, remedy: str) -> UserError:
    return UserError(f"environment variable {_PREFIX}{name} has no use for {text!r}", remedy=remedy)
