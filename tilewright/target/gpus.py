"""The described NVIDIA GPUs, by the architecture's name in LLVM and `ptxas`.

Numbers are those of the largest part of each architecture: schedules depend on the resources of a
multiprocessor, which all parts share, and on their number, which is determined again at run time.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from tilewright.support.errors import UserError, nearest
from tilewright.target.cpu import Caches, Cpu

#: The architecture in the triples of NVIDIA's GPUs.
NVPTX: Final = "nvptx64"
NVPTX_TRIPLE: Final = "nvptx64-nvidia-cuda"
#: Threads per warp.
WARP: Final = 32
_FLOAT32: Final = "float32"


class Gpu(NamedTuple):
    """A GPU by its LLVM name, with parameters for schedules and lower bounds."""

    name: str
    #: The PTX version that has all of its instructions, as LLVM's feature.
    ptx: str
    multiprocessors: int
    #: Bytes of shared memory, at most per block, and in total per multiprocessor.
    shared: int
    shared_in_all: int
    #: Threads resident on a multiprocessor.
    threads: int
    l2: int
    #: Bytes per second of device memory.
    bandwidth: float
    #: Operations per second: plain float32, and float16 by tensor instructions.
    flops: float
    tensor_flops: float
    #: Most threads per block.
    most_threads: int = 1024
    #: 32-bit registers per multiprocessor.
    registers: int = 65536
    #: Nanoseconds per kernel launch, however little it does.
    launch_time: float = 2000.0
    #: Whether float32 products may use only ten fraction bits of their factors (TF32).
    tf32: bool = False
    #: The fraction of tensor throughput that convolutions reach: with channels last, and without.
    conv_share: float = 0.3
    plain_conv_share: float = 0.02

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability: major and minor number."""
        digits = "".join(c for c in self.name if c.isdigit())
        return int(digits[:-1]), int(digits[-1])

    @property
    def has_warp_products(self) -> bool:
        """Whether warps multiply tiles of narrow floats (`mma.sync`, `ldmatrix`), and copies to
        shared memory are asynchronous (`cp.async`)."""
        return self.capability >= (8, 0)

    def tensor_flops_of(self, itemsize: int) -> float:
        """Operations per second of tensor instructions on elements of this size."""
        return self.tensor_flops * 2 / itemsize

    def multiplies(self, dtype: str) -> bool:
        """Whether there are tensor instructions for factors of this type."""
        since = _MULTIPLIED_SINCE.get(dtype, (sys.maxsize, 0))
        return self.capability >= since and (self.tf32 or dtype != _FLOAT32)

    @property
    def has_early_launches(self) -> bool:
        """Whether kernels can start before the ones they wait for end (`griddepcontrol`)."""
        return self.capability >= (9, 0)

    @property
    def has_group_products(self) -> bool:
        """Whether four warps multiply tiles of narrow floats in shared memory (`wgmma`)."""
        return self.name == "sm_90a"


#: The first architecture with tensor instructions for a type.
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
#: The same as processors, for LLVM's options.
CPUS: Final = tuple(
    Cpu(gpu.name, NVPTX, frozenset([gpu.ptx]), Caches(gpu.shared, gpu.l2, 0, 128), fma_ports=4)
    for gpu in _TABLE
)


def find_gpu(name: str) -> Gpu:
    """The GPU with this name."""
    if name not in GPUS:
        raise UserError(
            f"target option -arch={name}", reason="no such GPU", remedy=nearest(name, GPUS)
        )
    return GPUS[name]
