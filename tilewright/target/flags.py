"""Reads the processor's name and features from Linux, by LLVM's names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")

#: Arm's own processors by part number.
_ARM_PARTS = {
    "0xd03": "cortex-a53",
    "0xd05": "cortex-a55",
    "0xd07": "cortex-a57",
    "0xd08": "cortex-a72",
    "0xd09": "cortex-a73",
    "0xd0b": "cortex-a76",
    "0xd0c": "neoverse-n1",
    "0xd40": "neoverse-v1",
    "0xd41": "cortex-a78",
    "0xd44": "cortex-x1",
    "0xd48": "cortex-x2",
    "0xd49": "neoverse-n2",
    "0xd4f": "neoverse-v2",
    "0xd82": "cortex-x4",
    "0xd84": "neoverse-v3",
    "0xd8e": "neoverse-n3",
}
#: AMD's processors by family: the first and last model, and the name of the core.
_AMD_MODELS: Final = {
    "23": ((0x00, 0x2F, "znver1"), (0x30, 0xFF, "znver2")),
    "25": (
        (0x00, 0x0F, "znver3"),
        (0x10, 0x1F, "znver4"),
        (0x20, 0x5F, "znver3"),
        (0x60, 0xAF, "znver4"),
    ),
    "26": ((0x00, 0xFF, "znver5"),),
}
#: Linux's flags by LLVM's features. On AArch64 LLVM itself only detects a few.
_ARM_FLAGS = {
    "fp": "fp-armv8",
    "asimd": "neon",
    "crc32": "crc",
    "atomics": "lse",
    "uscat": "lse2",
    "lrcpc": "rcpc",
    "ilrcpc": "rcpc-immo",
    "asimdrdm": "rdm",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "asimdfhm": "fp16fml",
    "fcma": "complxnum",
    "jscvt": "jsconv",
    "frint": "fptoint",
    "flagm": "flagm",
    "flagm2": "altnzcv",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "cssc": "cssc",
    "mops": "mops",
    "sve": "sve",
    "sve2": "sve2",
    "sve2p1": "sve2p1",
    "svebitperm": "sve-bitperm",
    "svef32mm": "f32mm",
    "svef64mm": "f64mm",
    "sme": "sme",
    "sme2": "sme2",
    "smef64f64": "sme-f64f64",
    "smei16i64": "sme-i16i64",
}
_X86_FLAGS = {
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "lahf_lm": "sahf",
    "bmi1": "bmi",
    "abm": "lzcnt",
    "3dnowprefetch": "prfchw",
    "avx_vnni": "avxvnni",
    "avx_vnni_int8": "avxvnniint8",
    "avx_vnni_int16": "avxvnniint16",
    "avx_ifma": "avxifma",
    "avx_ne_convert": "avxneconvert",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vp2intersect": "avx512vp2intersect",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "amx_bf16": "amx-bf16",
    "amx_complex": "amx-complex",
    "amx_fp16": "amx-fp16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    **{
        name: name
        for name in """sse sse2 ssse3 sse4a cx16 popcnt movbe bmi2 adx rdpid movdiri movdir64b
        clflushopt clwb cldemote gfni avx avx2 fma f16c avx512f avx512bw avx512cd avx512dq avx512vl
        avx512ifma avx512vbmi""".split()
    },
}
_FLAGS = {"aarch64": ("Features", _ARM_FLAGS), "x86_64": ("flags", _X86_FLAGS)}
#: Features without a flag of their own, by the feature that implies them.
_ALONG = {"crc32": "sse4.2"}
#: Tuning preferences, as opposed to capabilities.
_WISHES: Final = frozenset({"prefer-128-bit", "prefer-256-bit"})


def read_flags(cpuinfo: Path, arch: str) -> dict[str, bool]:
    """The features that Linux can report, and whether it does; empty without a list."""
    title, names = _FLAGS.get(arch, ("", {}))
    try:
        lines = cpuinfo.read_text().splitlines() if names else []
    except OSError:
        return {}
    listed = next((set(x.partition(":")[2].split()) for x in lines if x.startswith(title)), None)
    if not listed:
        return {}
    found = {feature: flag in listed for flag, feature in names.items()}
    return found | {f: found[other] for f, other in _ALONG.items() if other in found}


def read_name(cpuinfo: Path, arch: str) -> str:
    """The processor's name, if all of its cores are the same known part."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ""

    def values(title: str) -> set[str]:
        pairs = [line.partition(":") for line in lines]
        return {value.strip() for name, _, value in pairs if name.strip() == title}

    if arch == "aarch64":
        parts = values("CPU part")
        is_known = values("CPU implementer") == {"0x41"} and len(parts) == 1
        return _ARM_PARTS.get(parts.pop(), "") if is_known else ""
    if arch == "x86_64" and values("vendor_id") == {"AuthenticAMD"}:
        return _amd_name(values("cpu family"), values("model"))
    return ""


def _amd_name(families: set[str], models: set[str]) -> str:
    """The name of AMD's core by family and model, since cores differ in more than features."""
    if len(families) != 1 or len(models) != 1:
        return ""
    (family,), (model,) = families, models
    ranges = _AMD_MODELS.get(family, ()) if model.isdigit() else ()
    return next((name for first, last, name in ranges if first <= int(model) <= last), "")


def are_listed(features: frozenset[str], cpuinfo: Path, arch: str) -> bool:
    """Whether Linux reports all features that code requires."""
    there = {f for f, listed in read_flags(cpuinfo, arch).items() if listed}
    return features - _WISHES <= there
