"""Processor features by LLVM's names, and their implications.

Only features that tensor code (or LLVM itself) may use have implications here. Some others are
known by name, so that a list copied from elsewhere is accepted; they are passed on to LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tilewright.support.errors import UserError, nearest

Features = frozenset[str]


def _rules(text: str) -> dict[str, tuple[str, ...]]:
    """One line per rule: `a b: c d` means that a needs c and d, and so does b."""
    rules: dict[str, tuple[str, ...]] = {}
    for line in text.strip().splitlines():
        names, _, needs = line.partition(":")
        rules.update({name: tuple(needs.split()) for name in names.split()})
    return rules


#: Features that LLVM enables along with a feature; disabling one of them disables the feature too.
_NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": _rules("""
        sse cx16 sahf popcnt crc32 movbe bmi bmi2 lzcnt adx prfchw rdpid movdiri movdir64b:
        clflushopt clwb cldemote prefer-128-bit prefer-256-bit amx-tile:
        sse2: sse
        sse3 gfni: sse2
        ssse3 sse4a: sse3
        sse4.1: ssse3
        sse4.2: sse4.1
        avx: sse4.2
        avx2 fma f16c: avx
        avxvnni avxvnniint8 avxvnniint16 avxifma avxneconvert: avx2
        avx512f: avx2 fma f16c
        avx512bw avx512cd avx512dq avx512vl: avx512f
        avx512ifma avx512vnni avx512vpopcntdq avx512vp2intersect: avx512f
        avx512bf16 avx512bitalg avx512fp16 avx512vbmi avx512vbmi2: avx512bw
        amx-bf16 amx-int8 amx-fp16 amx-complex: amx-tile
    """),
    "aarch64": _rules("""
        fp-armv8 crc lse lse2 rcpc flagm altnzcv cssc mops strict-align:
        neon fullfp16 jsconv fptoint: fp-armv8
        dotprod rdm complxnum bf16 i8mm: neon
        fp16fml: fullfp16
        rcpc-immo: rcpc
        sve: neon fullfp16
        sve2 f32mm f64mm: sve
        sve2p1 sve-bitperm: sve2
        sme: bf16 fullfp16
        sme2 sme-f64f64 sme-i16i64: sme
    """),
    "riscv64": _rules("""
        m a c f zba zbb zbs zicond zve32x zvl32b unaligned-scalar-mem unaligned-vector-mem:
        d zfhmin: f
        zfh: zfhmin
        zve32f: zve32x f
        zve64x: zve32x
        zve64f: zve64x zve32f
        zve64d: zve64f d
        v: zve64d zvl128b
        zvl64b: zvl32b
        zvl128b: zvl64b
        zvl256b: zvl128b
        zvl512b: zvl256b
        zvl1024b: zvl512b
        zvbb: zve32x
        zvfhmin zvfbfmin: zve32f
        zvfh: zvfhmin zfhmin
        zvfbfwma: zvfbfmin
    """),
    "arm": _rules("""
        dsp crc fp16 fp64 d32 vfp2sp hwdiv hwdiv-arm strict-align:
        vfp3d16sp: vfp2sp
        vfp4d16sp: vfp3d16sp fp16
        fp-armv8d16sp: vfp4d16sp
        fullfp16: fp-armv8d16sp
        fp-armv8d16: fp-armv8d16sp fp64
        vfp3: vfp3d16sp fp64 d32
        vfp4: vfp3 vfp4d16sp
        fp-armv8: vfp4 fp-armv8d16
        neon: vfp3
        dotprod: neon
        mve: dsp
        mve.fp: mve fullfp16
    """),
    "wasm32": _rules("""
        atomics bulk-memory bulk-memory-opt extended-const multivalue mutable-globals:
        nontrapping-fptoint reference-types sign-ext simd128 tail-call exception-handling:
        relaxed-simd fp16: simd128
    """),
    "nvptx64": _rules("ptx63 ptx80 ptx86:"),
}
_NEEDS["riscv32"] = _NEEDS["riscv64"]
#: Features passed on to LLVM.
_HANDED_ON: dict[str, Features] = {
    "x86_64": frozenset(
        """64bit aes cmov cmpccxadd cx8 enqcmd ermsb evex512 fsgsbase fsrm fxsr hreset invpcid kl
        mmx mwaitx pclmul pconfig pku prefetchi ptwrite rdpru rdrnd rdseed retpoline rtm serialize
        sgx sha sha512 shstk sm3 sm4 soft-float tsxldtrk uintr vaes vpclmulqdq vzeroupper waitpkg
        wbnoinvd widekl x87 xsave xsavec xsaveopt xsaves clzero fast-gather""".split()
    ),
    "aarch64": frozenset(
        """aes bti ccdp ccpp crypto dit hbc ls64 mte outline-atomics pan pauth perfmon predres
        rand ras reserve-x18 sb sha2 sha3 sm4 spe ssbs sve-aes sve2-aes sve2-bitperm sve2-sha3
        sve2-sm4 wfxt v8.1a v8.2a v8.3a v8.4a v8.5a v8.6a v8.7a v8a v9a v9.1a v9.2a""".split()
    ),
    "riscv64": frozenset(
        """64bit i relax save-restore zaamo zalrsc zca zfa zicbom zicbop zicboz zicntr zicsr
        zifencei zihintntl zihintpause zkt zmmul""".split()
    ),
    "arm": frozenset(
        """8msecext acquire-release aclass aes bf16 crypto db fp16fml i8mm lob loop-align mclass mp
        pacbti perfmon ras rclass sb sha2 slow-fp-brcc soft-float thumb-mode thumb2 trustzone v7
        v7clrex virtualization vfp2 vfp3d16 vfp3sp vfp4d16 vfp4sp fp-armv8sp""".split()
    ),
    "wasm32": frozenset("call-indirect-overlong gc multimemory wide-arithmetic".split()),
    "nvptx64": frozenset(),
}
_HANDED_ON["riscv32"] = _HANDED_ON["riscv64"] - {"64bit"} | {"32bit"}

#: The architectures of CPU targets; GPUs have kinds of their own.
ARCHITECTURES = tuple(arch for arch in _NEEDS if arch != "nvptx64")


def reasoned_about(arch: str) -> Features:
    """The features of `arch` with implications here."""
    return frozenset(_NEEDS[arch])


@cache
def implied_by(arch: str, feature: str) -> Features:
    """`feature` and all features it implies."""
    needs = _NEEDS[arch].get(feature, ())
    return frozenset([feature]).union(*(implied_by(arch, n) for n in needs))


def enable(arch: str, features: Features, added: Iterable[str]) -> Features:
    """`features` with `added` enabled, and all they need."""
    return features.union(*(implied_by(arch, f) for f in added))


def disable(arch: str, features: Features, removed: Iterable[str]) -> Features:
    """`features` with `removed` disabled, and all that need them."""
    gone = frozenset(removed)
    return frozenset(f for f in features if not implied_by(arch, f) & gone)


def outermost(arch: str, features: Features) -> list[str]:
    """The features not implied by others among them: enabling these enables all."""
    brought = {f for g in features for f in implied_by(arch, g) if f != g}
    return sorted(features - brought)


def roots(arch: str, features: Features) -> list[str]:
    """The features that need no others among them: disabling these disables all."""
    return sorted(f for f in features if len(implied_by(arch, f) & features) == 1)


def check_known(arch: str, feature: str) -> None:
    """Refuse a name that is no feature of `arch`: LLVM would only warn and ignore it."""
    known = _NEEDS[arch].keys() | _HANDED_ON[arch]
    if feature not in known:
        raise UserError(
            f"target option -mattr names {feature!r}",
            reason=f"{arch} has no such feature",
            remedy=nearest(feature, known),
        )
