from __future__ import annotations

import os
import pickle

import pytest

from tilewright.support.errors import UserError
from tilewright.target import Caches, Target
from tilewright.target.cpu import cpus
from tilewright.target.features import ARCHITECTURES, implied_by, reasoned_about

EVERY_CPU = [(arch, name) for arch in ARCHITECTURES for name in cpus(arch)]
TRIPLES = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
    "arm": "armv7-unknown-linux-gnueabihf",
    "riscv32": "riscv32-unknown-none-elf",
    "wasm32": "wasm32-unknown-unknown",
}


def test_plain_llvm_is_this_machine() -> None:
    target = Target.of("llvm")
    assert target == Target.of() == Target.of(target) == Target.of("llvm -mcpu=native")
    assert 1 <= target.cores <= (os.cpu_count() or 1)
    assert target.vector_bits in (128, 256, 512)
    assert target.caches.l1d >= 16 << 10


@pytest.mark.parametrize(
    "text",
    [
        "llvm",
        "llvm -mcpu=sapphirerapids",
        "llvm -mcpu=skylake-avx512 -mattr=+avx512vnni,-amx-tile -mtriple=x86_64-linux-gnu",
        "llvm -mcpu=sapphirerapids -mattr=-avx512f,+aes,-pku -num-cores=56",
        "llvm -mcpu=x86-64 -mattr=+avx512bf16",
        "llvm -mcpu=apple-m1 -mtriple=arm64-apple-darwin -l2=4M -l3=0",
        "llvm -mcpu=rv64gcv -mattr=+zvl256b",
        "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128",
    ],
)
def test_text_round_trips(text: str) -> None:
    target = Target.of(text)
    assert Target.of(str(target)) == target
    assert hash(Target.of(str(target))) == hash(target)
    assert str(Target.of(str(target))) == str(target)
    assert pickle.loads(pickle.dumps(target)) == target


def test_text_is_short_and_canonical() -> None:
    target = Target.of("llvm -num-cores=8 -mattr=-amx-int8,-avx512f -mcpu=sapphirerapids")
    base = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids"
    if Target.of("llvm").arch != "x86_64":
        assert str(target) == f"{base} -mattr=-amx-int8,-avx512f -num-cores=8"
    assert repr(target) == f"Target.of({str(target)!r})"
    assert Target.of("llvm -mcpu=znver4 -mattr=-amx-tile") == Target.of("llvm -mcpu=znver4")


@pytest.mark.parametrize(
    ("text", "bits", "registers", "masks"),
    [
        ("-mcpu=x86-64", 128, 16, False),
        ("-mcpu=haswell", 256, 16, False),
        ("-mcpu=x86-64-v4", 512, 32, True),
        ("-mcpu=sapphirerapids", 512, 32, True),
        ("-mcpu=skylake-avx512 -mattr=+prefer-256-bit", 256, 32, True),
        ("-mcpu=sapphirerapids -mattr=-avx512f", 256, 16, False),
        ("-mcpu=neoverse-n1", 128, 32, False),
        ("-mcpu=neoverse-v1", 128, 32, False),
        ("-mcpu=rv64gc", 0, 32, False),
        ("-mcpu=rv64gcv", 128, 32, True),
        ("-mcpu=sifive-x280", 512, 32, True),
        ("-mtriple=wasm32-unknown-unknown", 0, 16, False),
        ("-mtriple=wasm32-unknown-unknown -mattr=+relaxed-simd", 128, 16, False),
    ],
)
def test_vectors(text: str, bits: int, registers: int, masks: bool) -> None:
    target = Target.of(f"llvm {text}")
    assert (target.vector_bits, target.vector_registers) == (bits, registers)
    assert target.has_masks == masks
    assert target.chains == max(1, registers // 8)
    assert target.prefers_512 == (bits == 512)
    assert target.lanes("float32") == max(1, bits // 32)
    assert target.lanes("int8") == max(1, bits // 8)


def test_multiply_add() -> None:
    assert not Target.of("llvm -mcpu=sandybridge").has_fma
    server = Target.of("llvm -mcpu=icelake-server")
    assert server.has_fma and (server.fma_ports, server.fma_latency) == (2, 4)
    assert not server.has_lane_fma
    arm = Target.of("llvm -mcpu=neoverse-v2")
    assert arm.has_fma and arm.has_lane_fma and arm.fma_ports == 4


def test_features_bring_what_they_need() -> None:
    added = Target.of("llvm -mcpu=x86-64 -mattr=+avx512vnni")
    assert added.has("avx512f") and added.has("fma") and not added.has("avx512bw")
    removed = Target.of("llvm -mcpu=sapphirerapids -mattr=-avx512bw")
    assert removed.has("avx512vl") and not removed.has("avx512bf16")
    assert Target.of("llvm -mcpu=znver4 -mattr=-avx2,+avx2").has("avx2"), "the later flag wins"


def test_features_for_llvm() -> None:
    flags = Target.of("llvm -mcpu=sapphirerapids -mattr=-amx-tile,+aes,-pku").llvm_features
    words = flags.split(",")
    assert {"+avx512vnni", "-amx-tile", "-amx-int8", "+aes", "-pku"} <= set(words)
    assert "-prefer-256-bit" in words
    assert Target.of("llvm -mcpu=rv64gcv").llvm_cpu == "generic-rv64"


def test_figures_may_be_given() -> None:
    target = Target.of("llvm -mcpu=znver4 -num-cores=12 -l1d=32K -l2=1M -l3=96M -line=128")
    assert target.cores == 12
    assert target.caches == Caches(32 << 10, 1 << 20, 96 << 20, 128)


def test_a_triple_alone_means_the_least_machine_of_its_kind() -> None:
    target = Target.of("llvm -mtriple=x86_64-linux-gnu")
    assert (target.cpu, target.triple) == ("x86-64", "x86_64-unknown-linux-gnu")
    assert Target.of("llvm -mtriple=amd64-unknown-linux-gnu -mcpu=generic").cpu == "x86-64"
    assert Target.of("llvm -mtriple=arm64-apple-darwin").arch == "aarch64"
    assert Target.of("llvm -mtriple=wasm32-unknown-unknown").pointer_bits == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown kind ''.*known: c, cuda, llvm, simt"),
        ("lvm", "unknown kind 'lvm'.*did you mean llvm"),
        ("llvm -mpcu=znver4", "unknown option '-mpcu'.*did you mean -mcpu"),
        ("llvm sapphirerapids", "unknown option 'sapphirerapids'.*known: -arch, -fma-ports, -l1d"),
        ("llvm -mcpu", "option -mcpu needs a value"),
        ("llvm -mcpu=znver4 -mcpu=znver5", "option -mcpu is given twice"),
        ("llvm -mcpu=saphirerapids", "'saphirerapids'.*did you mean sapphirerapids"),
        ("llvm -mcpu=znver4 -mattr=+avx512vni", "x86_64 has no such.*mean avx512vnni"),
        ("llvm -mcpu=neoverse-n1 -mattr=+avx2", "'avx2': aarch64 has no such feature"),
        ("llvm -mattr=avx2", "no use for 'avx2'.*\\+feature to add"),
        ("llvm -num-cores=0", "-num-cores has no use for '0'.*1 or more"),
        ("llvm -l2=big", "-l2 has no use for 'big'.*48K or 2M"),
        ("llvm -mcpu=znver4 -mtriple=aarch64-linux-gnu", "a processor of x86_64.*is aarch64's"),
        ("llvm -mtriple=ppc64le-linux-gnu", "no code generator for 'ppc64le'.*known: aarch64"),
        ("llvm -mcpu=native -mtriple=wasm32-unknown-unknown", "this machine is"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"(?s){message}"):
        Target.of(text)


@pytest.mark.parametrize(("arch", "name"), EVERY_CPU)
def test_descriptions_are_sound(arch: str, name: str) -> None:
    cpu = cpus(arch)[name]
    assert cpu.features <= reasoned_about(arch)
    assert all(implied_by(arch, f) <= cpu.features for f in cpu.features)
    assert cpu.caches.l1d and cpu.caches.line and cpu.fma_ports and cpu.fma_latency


@pytest.mark.parametrize(("arch", "name"), EVERY_CPU)
def test_llvm_knows_processors_and_features(
    arch: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    target = Target.of(f"llvm -mtriple={TRIPLES[arch]} -mcpu={name}")
    llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.llvm_cpu, features=target.llvm_features
    )
    complaint = capfd.readouterr().err
    assert not complaint, "LLVM only warns of names that it does not know"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_llvm_knows_every_feature(arch: str, capfd: pytest.CaptureFixture[str]) -> None:
    import llvmlite.binding as llvm

    from tilewright.target.features import _HANDED_ON

    llvm.initialize_all_targets()
    # Turned off, so that no two of them can be at odds.
    flags = ",".join(f"-{f}" for f in sorted(reasoned_about(arch) | _HANDED_ON[arch]))
    llvm.Target.from_triple(TRIPLES[arch]).create_target_machine(cpu="", features=flags)
    assert "not a recognized feature" not in capfd.readouterr().err


def test_ports_may_be_told() -> None:
    target = Target.of("llvm -mcpu=znver3 -fma-ports=4")
    assert target.fma_ports == 4 and "-fma-ports=4" in str(target)
    assert Target.of(str(target)) == target
    assert Target.of("llvm -mcpu=znver3 -fma-ports=2") == Target.of("llvm -mcpu=znver3")
    with pytest.raises(UserError, match="-fma-ports has no use for 'many'"):
        Target.of("llvm -mcpu=znver3 -fma-ports=many")


@pytest.mark.parametrize(
    ("cpu", "widths"),
    [("znver4", (512, 256, 128)), ("znver3", (256, 128)), ("neoverse-n1", (128,))],
)
def test_vectors_of_other_widths(cpu: str, widths: tuple[int, ...]) -> None:
    target = Target.of(f"llvm -mcpu={cpu}")
    assert target.vector_widths == widths
    for bits in widths:
        other = target.with_vectors(bits)
        assert other.vector_bits == bits and set(other.vector_widths) == set(widths)
        assert Target.of(str(other)) == other and other.with_vectors(widths[0]) == target


def test_widths_that_a_description_declines() -> None:
    target = Target.of("llvm -mcpu=znver3 -mattr=+prefer-128-bit")
    assert target.vector_widths == (128, 256)
    assert target.with_vectors(256) == Target.of("llvm -mcpu=znver3")
