"""The x86-64 processors.

Each line gives what a processor adds to an earlier one. Features are LLVM's for the name; cache
sizes (KiB: L1 data, L2, L3 of a common part) and FMA parameters are the vendors'. They are only
defaults of the cost model: on the machine itself, the values that the system reports replace them.
"""

from __future__ import annotations

from tilewright.target.cpu import Cpu, kib
from tilewright.target.features import enable

_V1 = Cpu(
    "x86-64", "x86_64", enable("x86_64", frozenset(), ["sse2"]), kib(32, 256, 4096), fma_ports=1
)
_V2 = _V1.variant("x86-64-v2", "cx16 sahf popcnt crc32 sse4.2")
_V3 = _V2.variant("x86-64-v3", "avx2 bmi bmi2 f16c fma lzcnt movbe", fma_ports=2)
_V4 = _V3.variant("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl", kib(32, 1024, 16384))

_NEHALEM = _V2.variant("nehalem", "", kib(32, 256, 8192))
_WESTMERE = _NEHALEM.variant("westmere", "")
_SANDYBRIDGE = _WESTMERE.variant("sandybridge", "avx", fma_latency=5)
_IVYBRIDGE = _SANDYBRIDGE.variant("ivybridge", "f16c")
_HASWELL = _IVYBRIDGE.variant("haswell", "avx2 bmi bmi2 fma lzcnt movbe", fma_ports=2)
_BROADWELL = _HASWELL.variant("broadwell", "adx prfchw")
_SKYLAKE = _BROADWELL.variant("skylake", "clflushopt", fma_latency=4)

_SKYLAKE_AVX512 = _SKYLAKE.variant(
    "skylake-avx512",
    "avx512f avx512bw avx512cd avx512dq avx512vl clwb",
    kib(32, 1024, 22528),
)
_CASCADELAKE = _SKYLAKE_AVX512.variant("cascadelake", "avx512vnni")
_COOPERLAKE = _CASCADELAKE.variant("cooperlake", "avx512bf16")

# The client parts of this family lack the second 512-bit FMA unit.
_ICELAKE_CLIENT = _SKYLAKE.variant(
    "icelake-client",
    "avx512f avx512bw avx512cd avx512dq avx512vl avx512bitalg avx512ifma avx512vbmi avx512vbmi2 "
    "avx512vnni avx512vpopcntdq gfni rdpid",
    kib(48, 512, 8192),
    fma_ports=1,
)
_ROCKETLAKE = _ICELAKE_CLIENT.variant("rocketlake", "", kib(48, 512, 16384))
_TIGERLAKE = _ICELAKE_CLIENT.variant(
    "tigerlake", "avx512vp2intersect clwb movdiri movdir64b", kib(48, 1280, 12288)
)
_ICELAKE_SERVER = _ICELAKE_CLIENT.variant(
    "icelake-server", "clwb", kib(48, 1280, 36864), fma_ports=2
)
_SAPPHIRERAPIDS = _ICELAKE_SERVER.variant(
    "sapphirerapids",
    "amx-bf16 amx-int8 amx-tile avx512bf16 avx512fp16 avxvnni cldemote movdiri movdir64b",
    kib(48, 2048, 107520),
)
_EMERALDRAPIDS = _SAPPHIRERAPIDS.variant("emeraldrapids", "", kib(48, 2048, 163840))
_GRANITERAPIDS = _SAPPHIRERAPIDS.variant("graniterapids", "amx-fp16", kib(48, 2048, 294912))

_ALDERLAKE = _SKYLAKE.variant(
    "alderlake", "avxvnni clwb gfni movdiri movdir64b rdpid", kib(48, 1280, 30720)
)
_RAPTORLAKE = _ALDERLAKE.variant("raptorlake", "", kib(48, 2048, 36864))
_METEORLAKE = _ALDERLAKE.variant("meteorlake", "", kib(48, 2048, 24576))
_ARROWLAKE = _ALDERLAKE.variant(
    "arrowlake", "avxifma avxneconvert avxvnniint8", kib(48, 3072, 36864)
)
_LUNARLAKE = _ARROWLAKE.variant("lunarlake", "avxvnniint16", kib(48, 2560, 12288))
_SIERRAFOREST = _ALDERLAKE.variant(
    "sierraforest", "avxifma avxneconvert avxvnniint8 cldemote", kib(32, 4096, 110592), fma_ports=1
)

# The first of these splits 256-bit operations in two; the fourth splits 512-bit operations.
_ZNVER1 = _HASWELL.variant("znver1", "adx clflushopt prfchw sse4a", kib(32, 512, 8192), fma_ports=1)
_ZNVER2 = _ZNVER1.variant("znver2", "clwb rdpid", kib(32, 512, 16384), fma_ports=2)
_ZNVER3 = _ZNVER2.variant("znver3", "", kib(32, 512, 32768), fma_latency=4)
_ZNVER4 = _ZNVER3.variant(
    "znver4",
    "avx512f avx512bw avx512cd avx512dq avx512vl avx512bf16 avx512bitalg avx512ifma avx512vbmi "
    "avx512vbmi2 avx512vnni avx512vpopcntdq gfni",
    kib(32, 1024, 32768),
    fma_ports=1,
)
_ZNVER5 = _ZNVER4.variant(
    "znver5",
    "avx512vp2intersect avxvnni movdiri movdir64b",
    kib(48, 1024, 32768),
    fma_ports=2,
)

#: By age within a family, the generic one first.
CPUS: tuple[Cpu, ...] = (
    *(_V1, _V2, _V3, _V4),
    *(_NEHALEM, _WESTMERE, _SANDYBRIDGE, _IVYBRIDGE, _HASWELL, _BROADWELL, _SKYLAKE),
    *(_SKYLAKE_AVX512, _CASCADELAKE, _COOPERLAKE, _ICELAKE_CLIENT, _ROCKETLAKE, _TIGERLAKE),
    *(_ICELAKE_SERVER, _SAPPHIRERAPIDS, _EMERALDRAPIDS, _GRANITERAPIDS),
    *(_ALDERLAKE, _RAPTORLAKE, _METEORLAKE, _ARROWLAKE, _LUNARLAKE, _SIERRAFOREST),
    *(_ZNVER1, _ZNVER2, _ZNVER3, _ZNVER4, _ZNVER5),
)
