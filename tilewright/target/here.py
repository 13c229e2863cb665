"""Whether this machine can run code for some target."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from tilewright.support.errors import UserError
from tilewright.target.flags import CPUINFO, are_listed
from tilewright.target.target import Target
from tilewright.target.triple import arch_of

_WINDOWS, _DARWIN, _OTHER = "windows", ("darwin", "macos"), "other"


def why_not_here(triple: str, features: Iterable[str]) -> str:
    """The reason why this machine cannot run code for a target; empty where it can."""
    try:
        arch = arch_of(triple)
    except UserError:
        arch = triple
    if _is_known_to_run(triple, arch, frozenset(features)):
        return ""
    here = Target.of("llvm")
    if arch != here.arch:
        return f"it is for {arch}, and this machine is {here.arch}"
    if _system(triple) != _system(here.triple):
        return f"it is for {triple}, and this machine is {here.triple}"
    missing = sorted(set(features) - here.features)
    return f"this machine lacks {', '.join(missing)}" if missing else ""


def _is_known_to_run(triple: str, arch: str, features: frozenset[str]) -> bool:
    """Whether the system itself reports all features; LLVM may detect more."""
    if sys.platform != "linux" or _system(triple) != _OTHER or os.uname().machine != arch:
        return False
    return are_listed(features, CPUINFO, arch)


def _system(triple: str) -> str:
    """A common name for systems that can run each other's code."""
    if any(name in triple for name in _DARWIN):
        return "darwin"
    return _WINDOWS if _WINDOWS in triple else _OTHER
