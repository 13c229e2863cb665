"""The NVIDIA GPUs that are described, by what LLVM and `ptxas` call their architecture.

Figures are those of the largest part of each architecture: schedules ask how much one
multiprocessor holds, which all parts share, and how many there are, which a run finds out again.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from tilewright.support.errors import UserError, nearest
from tilewright.target.cpu import Caches, Cpu

#: The architecture that triples of NVIDIA's GPUs begin with.
NVPTX: Final = "nvptx64"
NVPTX_TRIPLE: Final = "nvptx64-nvidia-cuda"
#: Threads that run in lockstep.
WARP: Final = 32
_FLOAT32: Final = "float32"


class Gpu(NamedTuple):
    """A GPU as LLVM names it, with the figures that schedules and floors go by."""

    name: str
    #: The least version of PTX that has all of its instructions, as LLVM names it.
    ptx: str
    multiprocessors: int
    #: Bytes of shared memory that one block can have, and that a multiprocessor holds.
    shared: int
    shared_in_all: int
    #: Threads that a multiprocessor holds.
    threads: int
    l2: int
    #: Bytes a second from device memory.
    bandwidth: float
    #: Operations a second of plain float32, and of float16 by tensor instructions.
    flops: float
    tensor_flops: float
    #: The most threads of one block.
    most_threads: int = 1024
    #: Registers of 32 bits that a multiprocessor holds.
    registers: int = 65536
    #: Nanoseconds that one more kernel takes, however little it does.
    launch_time: float = 2000.0
    #: Whether products of float32 may take ten bits of the fractions of their factors (TF32).
    tf32: bool = False
    #: The shares of its tensor operations that convolutions reach: with channels last, and without.
    conv_share: float = 0.3
    plain_conv_share: float = 0.02

    @property
    def capability(self) -> tuple[int, int]:
        """What drivers call the architecture: major and minor number."""
        digits = "".join(c for c in self.name if c.isdigit())
        return int(digits[:-1]), int(digits[-1])

    @property
    def has_warp_products(self) -> bool:
        """Whether warps multiply tiles of narrow floats (`mma.sync`, `ldmatrix`), and copies to
        shared memory run ahead (`cp.async`)."""
        return self.capability >= (8, 0)

    def tensor_flops_of(self, itemsize: int) -> float:
        """Operations a second of tensor instructions on elements of so many bytes."""
        return self.tensor_flops * 2 / itemsize

    def multiplies(self, dtype: str) -> bool:
        """Whether there are tensor instructions for factors of a type."""
        since = _MULTIPLIED_SINCE.get(dtype, (sys.maxsize, 0))
        return self.capability >= since and (self.tf32 or dtype != _FLOAT32)

    @property
    def has_early_launches(self) -> bool:
        """Whether kernels can begin before those end that they wait for (`griddepcontrol`)."""
        return self.capability >= (9, 0)

    @property
    def has_group_products(self) -> bool:
        """Whether four warps multiply tiles of narrow floats in shared memory (`wgmma`)."""
        return self.name == "sm_90a"


#: The architectures since which tensor instructions multiply a type.
_MULTIPLIED_SINCE: Final = {
    **dict.fromkeys(("float16", "bfloat16", "int8", "uint8", _FLOAT32), (8, 0)),
    "float8_e4m3fn": (8, 9),
}


def _kib(count: int) -> int:
    return count << 10


_TABLE: Final = (
    Gpu("sm_70", "ptx63", 80, _kib(96), _kib(96), 2048, 6 << 20, 0.9e12, 15.7e12, 125e12),
    Gpu("sm_75", "ptx63", 72, _kib(64), _kib(64), 1024, 6 << 20, 0.67e12, 16.3e12, 130e12),
    Gpu("sm_80", "ptx80", 108, _kib(163), _kib(164), 2048, 40 << 20, 2.0e12, 19.5e12, 312e12),
    Gpu("sm_86", "ptx80", 84, _kib(99), _kib(100), 1536, 6 << 20, 0.94e12, 40e12, 160e12),
    Gpu("sm_89", "ptx84", 144, _kib(99), _kib(100), 1536, 96 << 20, 1.0e12, 91e12, 360e12),
    Gpu("sm_90", "ptx86", 132, _kib(227), _kib(228), 2048, 60 << 20, 4.4e12, 67e12, 990e12),
    Gpu("sm_90a", "ptx86", 132, _kib(227), _kib(228), 2048, 60 << 20, 4.4e12, 67e12, 990e12),
)
GPUS: Final = {gpu.name: gpu for gpu in _TABLE}
#: The same as rows of the table of processors, which LLVM's options are made of.
CPUS: Final = tuple(
    Cpu(gpu.name, NVPTX, frozenset([gpu.ptx]), Caches(gpu.shared, gpu.l2, 0, 128), fma_ports=4)
    for gpu in _TABLE
)


def find_gpu(name: str) -> Gpu:
    """The GPU of a name."""
    if name not in GPUS:
        raise UserError(
            f"target option -arch={name}", reason="no such GPU", remedy=nearest(name, GPUS)
        )
    return GPUS[name]
