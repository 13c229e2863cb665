"""The 32-bit Arm processors; see `cpus_x86` for the format.

Microcontrollers mostly have no caches: their RAM is as fast as an L1 cache, so the first size
stands for it. Cortex-A cores that also run 64-bit code are in `cpus_arm`.
"""

from __future__ import annotations

from tilewright.target.cpu import Cpu, kib
from tilewright.target.features import enable
from tilewright.target.timing import MICROCONTROLLER

_ARMV7 = Cpu(
    "generic", "arm", enable("arm", frozenset(), ["neon"]), kib(32, 256, 0), 1, fma_latency=8
)
_A9 = _ARMV7.variant("cortex-a9", "fp16", kib(32, 512, 0, line=32))
_A7 = _ARMV7.variant("cortex-a7", "vfp4 hwdiv hwdiv-arm", kib(32, 512, 0))
_A15 = _A7.variant("cortex-a15", "", kib(32, 1024, 0), fma_ports=2)
_A53 = _A7.variant("cortex-a53", "fp-armv8 crc", kib(32, 512, 0))


def _bare(version: str) -> str:
    return f"thumb{version}-unknown-none-eabi"


_M0 = Cpu(
    "cortex-m0",
    "arm",
    frozenset(["strict-align"]),
    kib(64, 0, 0, line=32),
    fma_ports=1,
    fma_latency=1,
    timing=MICROCONTROLLER,
    triple=_bare("v6m"),
)
_M0_PLUS = _M0.variant("cortex-m0plus")
_M3 = _M0._replace(name="cortex-m3", features=frozenset(["hwdiv"]), triple=_bare("v7m"))
_M4 = _M3.variant("cortex-m4", "dsp vfp4d16sp", triple=f"{_bare('v7em')}hf")
_M7 = _M4.variant("cortex-m7", "fp-armv8d16", kib(32, 0, 0, line=32))
_M33 = _M4.variant("cortex-m33", "fp-armv8d16sp", triple=f"{_bare('v8m.main')}hf")
_M55 = _M33.variant(
    "cortex-m55", "mve.fp fp-armv8d16", kib(32, 0, 0, line=32), triple=f"{_bare('v8.1m.main')}hf"
)
_M85 = _M55.variant("cortex-m85", "")

#: The generic one first.
CPUS: tuple[Cpu, ...] = (
    *(_ARMV7, _A7, _A9, _A15, _A53),
    *(_M0, _M0_PLUS, _M3, _M4, _M7, _M33, _M55, _M85),
)
