from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.target.cpu import Caches, cpus, kib
from tilewright.target.flags import _ARM_PARTS, are_listed, read_flags, read_name
from tilewright.target.host import actual_features, closest_cpu, read_caches

DEFAULT = kib(32, 512, 4096)
CPUINFO = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd crc32 atomics fphp asimdhp asimdrdm lrcpc asimddp bf16 i8mm sve
CPU implementer\t: 0x41
"""


def _write_cache(directory: Path, index: int, level: int, kind: str, size: str, line: int) -> None:
    folder = directory / f"index{index}"
    folder.mkdir(parents=True)
    values = {"level": level, "type": kind, "size": size, "coherency_line_size": line}
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


def test_caches_are_read(tmp_path: Path) -> None:
    _write_cache(tmp_path, 0, 1, "Data", "48K", 64)
    _write_cache(tmp_path, 1, 1, "Instruction", "16K", 64)
    _write_cache(tmp_path, 2, 2, "Unified", "2048K", 64)
    _write_cache(tmp_path, 3, 3, "Unified", "105M", 64)
    assert read_caches(tmp_path, DEFAULT) == kib(48, 2048, 107520)


def test_levels_beyond_the_last_one_are_absent(tmp_path: Path) -> None:
    _write_cache(tmp_path, 0, 2, "Unified", "1024K", 128)
    assert read_caches(tmp_path, DEFAULT) == Caches(32 << 10, 1 << 20, 0, 128)


def test_defaults_stand_where_nothing_is_told(tmp_path: Path) -> None:
    assert read_caches(tmp_path / "none", DEFAULT) == DEFAULT
    _write_cache(tmp_path, 0, 1, "Data", "unknown", 64)
    assert read_caches(tmp_path, DEFAULT) == DEFAULT


def test_linux_complements_llvm_on_arm(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO)
    flags = read_flags(path, "aarch64")
    assert flags["dotprod"] and flags["fullfp16"] and flags["bf16"] and flags["sve"]
    assert flags["sve2"] is False
    assert read_flags(tmp_path / "none", "aarch64") == {}
    path.write_text("processor\t: 0\n")
    assert read_flags(path, "aarch64") == {}


@pytest.mark.parametrize(
    ("maker", "parts", "name"),
    [
        ("0x41", ["0xd0c", "0xd0c"], "neoverse-n1"),
        ("0x41", ["0xd05", "0xd41"], ""),
        ("0x41", ["0xfff"], ""),
        ("0x48", ["0xd0c"], ""),
    ],
)
def test_linux_names_processors_of_arm(
    tmp_path: Path, maker: str, parts: list[str], name: str
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("".join(f"CPU implementer\t: {maker}\nCPU part\t: {p}\n\n" for p in parts))
    assert read_name(path, "aarch64") == name
    assert read_name(path, "x86_64") == read_name(tmp_path / "none", "aarch64") == ""
    assert set(_ARM_PARTS.values()) <= set(cpus("aarch64"))


@pytest.mark.parametrize(
    ("maker", "family", "models", "name"),
    [
        ("AuthenticAMD", 25, [1, 1], "znver3"),
        ("AuthenticAMD", 25, [0x61], "znver4"),
        ("AuthenticAMD", 23, [0x31], "znver2"),
        ("AuthenticAMD", 26, [2], "znver5"),
        ("AuthenticAMD", 25, [1, 0x61], ""),
        ("AuthenticAMD", 31, [1], ""),
        ("GenuineIntel", 6, [85], ""),
    ],
)
def test_linux_numbers_processors_of_amd(
    tmp_path: Path, maker: str, family: int, models: list[int], name: str
) -> None:
    path = tmp_path / "cpuinfo"
    titles = f"vendor_id\t: {maker}\ncpu family\t: {family}\nmodel name\t: A 7 of theirs\n"
    path.write_text("".join(f"{titles}model\t\t: {m}\n\n" for m in models))
    assert read_name(path, "x86_64") == name
    assert not name or name in cpus("x86_64")


@pytest.mark.parametrize(
    ("features", "listed"),
    [
        ({"sse4.2", "crc32", "avx2", "fma", "bmi", "lzcnt", "prefer-256-bit"}, True),
        ({"avx2", "avx512f"}, False),
        ({"a feature that has no flag"}, False),
    ],
)
def test_linux_lists_what_code_may_use(tmp_path: Path, features: set[str], listed: bool) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("flags\t\t: sse sse2 pni ssse3 sse4_1 sse4_2 avx avx2 fma bmi1 abm\n")
    assert are_listed(frozenset(features), path, "x86_64") == listed
    assert not are_listed(frozenset(features), tmp_path / "none", "x86_64")


def test_hidden_features_are_not_used() -> None:
    cpu = cpus("x86_64")["sapphirerapids"]
    reported = {"amx-tile": False, "avx512f": True, "avx512vp2intersect": True, "rtm": True}
    features = actual_features(cpu, reported)
    assert not features & {"amx-tile", "amx-bf16", "amx-int8", "rtm"}
    assert "avx512vp2intersect" in features
    assert "popcnt" in features, "what is not reported is believed of the name"


@pytest.mark.parametrize(
    ("like", "more", "closest"),
    [
        ("graniterapids", ["amx-complex"], "graniterapids"),
        ("znver5", [], "znver5"),
        ("broadwell", ["sse4a"], "broadwell"),
        ("x86-64", [], "x86-64"),
    ],
)
def test_an_unknown_processor_is_taken_for_the_nearest(
    like: str, more: list[str], closest: str
) -> None:
    present = {*cpus("x86_64")[like].features, *more}
    assert closest_cpu("x86_64", dict.fromkeys(present, True)).name == closest


def test_an_unknown_arm_processor_is_generic() -> None:
    assert closest_cpu("aarch64", {"neon": True}).name == "generic"
