"""LLVM's target triples: architecture, vendor, system, environment."""

from __future__ import annotations

from tilewright.support.errors import UserError, nearest
from tilewright.target.features import ARCHITECTURES

_SPELLINGS = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "nvptx64": "nvptx64",
    **{arch: arch for arch in ARCHITECTURES},
}
_SYSTEMS = ("linux", "darwin", "macos", "ios", "windows", "freebsd", "none", "wasi")
_DEFAULTS = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
}


def arch_of(triple: str) -> str:
    """The architecture that a triple begins with."""
    spelling = triple.partition("-")[0]
    if spelling not in _SPELLINGS:
        raise UserError(
            f"target triple {triple!r}",
            reason=f"no code generator for {spelling!r}",
            remedy=nearest(spelling, ARCHITECTURES),
        )
    return _SPELLINGS[spelling]


def default_triple(arch: str, host: str) -> str:
    """The triple to assume for an architecture: the host's own where it fits."""
    return host if arch_of(host) == arch else _DEFAULTS[arch]


def normalize_triple(triple: str) -> str:
    """The triple with its vendor spelt out: `x86_64-linux-gnu` has none."""
    parts = triple.split("-")
    if len(parts) in (2, 3) and parts[1].startswith(_SYSTEMS):
        parts.insert(1, "unknown")
    return "-".join(parts)
