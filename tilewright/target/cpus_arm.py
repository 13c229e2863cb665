"""The AArch64 processors; see `cpus_x86` for the format.

FMA parameters are for 128-bit NEON, which fixed-width code also uses where there is SVE.
"""

from __future__ import annotations

from tilewright.target.cpu import Cpu, kib
from tilewright.target.features import enable

_GENERIC = Cpu(
    "generic", "aarch64", enable("aarch64", frozenset(), ["neon"]), kib(32, 512, 2048), fma_ports=2
)

_A53 = _GENERIC.variant("cortex-a53", "crc", kib(32, 512, 0), fma_ports=1)
_A57 = _A53.variant("cortex-a57", "", kib(32, 2048, 0), fma_ports=2, fma_latency=9)
_A72 = _A57.variant("cortex-a72", "", kib(32, 1024, 0), fma_latency=7)
_A73 = _A72.variant("cortex-a73", "")
_A55 = _A53.variant("cortex-a55", "dotprod fullfp16 lse rcpc rdm", kib(32, 128, 1024))
_A76 = _A55.variant("cortex-a76", "", kib(64, 512, 2048), fma_ports=2)
_A78 = _A76.variant("cortex-a78", "", kib(64, 512, 4096))
_X1 = _A78.variant("cortex-x1", "", kib(64, 1024, 8192), fma_ports=4)

# Common to the Armv8.4 and later cores below.
_V8_4 = "lse2 rcpc-immo flagm complxnum jsconv"

_X2 = _X1.variant("cortex-x2", f"{_V8_4} bf16 i8mm fp16fml fptoint altnzcv sve sve2 sve-bitperm")
_X4 = _X2.variant("cortex-x4", "", kib(64, 2048, 8192))

_N1 = _A76.variant("neoverse-n1", "", kib(64, 1024, 32768))
_V1 = _N1.variant("neoverse-v1", f"{_V8_4} bf16 i8mm fp16fml sve", fma_ports=4)
_N2 = _V1.variant("neoverse-n2", "fptoint altnzcv sve2 sve-bitperm", fma_ports=2)
_V2 = _N2.variant("neoverse-v2", "", kib(64, 2048, 36864), fma_ports=4)
_N3 = _N2.variant("neoverse-n3", "", kib(64, 2048, 32768))
_V3 = _V2.variant("neoverse-v3", "", kib(64, 3072, 65536))
_GRACE = _V2.variant("grace", "", kib(64, 1024, 116736))
_COBALT = _N2.variant("cobalt-100", "")

_M1 = _A76.variant(
    "apple-m1", f"{_V8_4} fp16fml fptoint altnzcv", kib(128, 12288, 8192, line=128), fma_ports=4
)
_M2 = _M1.variant("apple-m2", "bf16 i8mm", kib(128, 16384, 8192, line=128))
_M3 = _M2.variant("apple-m3", "")
_M4 = _M3.variant("apple-m4", "sme sme2 sme-f64f64 sme-i16i64")

_AMPERE1 = _N1.variant(
    "ampere1", f"{_V8_4} bf16 i8mm fptoint altnzcv", kib(64, 2048, 65536), fma_latency=5
)
_ORYON = _AMPERE1.variant("oryon-1", "fp16fml", kib(96, 12288, 6144), fma_ports=4, fma_latency=4)
_A64FX = _A53.variant(
    "a64fx",
    "complxnum fullfp16 lse rdm sve",
    kib(64, 8192, 0, line=256),
    fma_ports=2,
    fma_latency=9,
)

#: The generic one first.
CPUS: tuple[Cpu, ...] = (
    _GENERIC,
    *(_A53, _A55, _A57, _A72, _A73, _A76, _A78, _X1, _X2, _X4),
    *(_N1, _N2, _N3, _V1, _V2, _V3, _GRACE, _COBALT),
    *(_M1, _M2, _M3, _M4),
    *(_AMPERE1, _ORYON, _A64FX),
)
