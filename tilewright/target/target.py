"""`Target`: a machine that code is made for, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tilewright.support.config import format_size
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError
from tilewright.support.triples import is_bare
from tilewright.target.cpu import Caches, Cpu, cpus, find_cpu, generic
from tilewright.target.features import (
    ARCHITECTURES,
    Features,
    check_known,
    disable,
    enable,
    outermost,
    reasoned_about,
    roots,
)
from tilewright.target.gpus import GPUS, NVPTX, NVPTX_TRIPLE, Gpu, find_gpu
from tilewright.target.host import host_cores, host_cpu, host_triple
from tilewright.target.host_gpu import host_gpu
from tilewright.target.kinds import KINDS, TargetKind
from tilewright.target.options import TargetOptions, parse_options
from tilewright.target.timing import CpuTiming
from tilewright.target.triple import arch_of, default_triple, normalize_triple
from tilewright.target.vectors import of_width, vector_bits, vector_registers, vector_widths

#: The GPU that the executor stands for, unless told otherwise.
_EXECUTED: Final = "sm_90a"


@dataclass(frozen=True, repr=False)
class Target:
    """A machine that code is made for; `Target.of` makes one from its text.

    `str(target)` is text that makes an equal target, on this machine and on any other.
    """

    triple: str
    #: The processor's name, one of those described in this package.
    cpu: str
    #: What the processor can do, by LLVM's names.
    features: Features
    #: How many cores the code may count on.
    cores: int
    caches: Caches
    #: Further LLVM features, with their signs: passed on, not reasoned about.
    handed_on: tuple[str, ...] = ()
    kind: TargetKind = KINDS["llvm"]
    #: The processor that launches a GPU's code.
    host: Target | None = None
    #: Whether a GPU's products of float32 may be those of TF32.
    tf32: bool = False
    #: Multiply-adds that start in each cycle; 0: as the processor is described.
    ports: int = 0

    @staticmethod
    def of(value: Target | str = "llvm") -> Target:
        """The target that a text describes; plain `llvm` is this machine with all it can do.

        `c` is this machine by way of C, which asks nothing of a processor beyond its architecture.
        TargetOptions: `-mcpu=NAME` (or `native`), `-mattr=+a,-b`, `-mtriple=T`, `-num-cores=N`, the
        cache sizes `-l1d=48K -l2=2M -l3=32M -line=64`, and `-fma-ports=2`. A triple without a
        processor means the least machine of that kind.

        `cuda` is the GPU of this machine, or that of `-arch=sm_90a`; `-products=tf32` lets products
        of float32 take ten bits of the fractions of their factors. The other options describe the
        processor beside it.
        """
        if isinstance(value, Target):
            return value
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UserError(f"{value!r} is no target", remedy="pass a text such as 'llvm'")
        options = parse_options(value)
        return _resolve(options) if options.kind.device == "cpu" else _resolve_gpu(options)

    @cached_property
    def gpu(self) -> Gpu | None:
        """The figures of the GPU; None where code is for processors alone."""
        return GPUS[self.cpu]._replace(tf32=self.tf32) if self.kind.device == "gpu" else None

    def with_tf32(self) -> Target:
        """The same with products of TF32, which GPUs since sm_80 have."""
        if self.gpu is None or not self.gpu.has_warp_products:
            raise UserError(
                "precision tf32 is for GPUs since sm_80",
                reason=f"the target is {self}",
                remedy='use "float32"',
            )
        return replace(self, tf32=True)

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Bits of the vectors that its features allow, its own first, then the widest first."""
        others = vector_widths(self.arch, self.features)
        return tuple(dict.fromkeys((self.vector_bits, *others)))

    @property
    def widest_vector(self) -> int:
        """Bits of the widest vectors that it has instructions for, be they preferred or not."""
        return max(self.vector_widths)

    def with_vectors(self, bits: int) -> Target:
        """The same with vectors of another of its widths."""
        return replace(self, features=of_width(self.arch, self.features, bits))

    @property
    def runs_on(self) -> Target:
        """The processor that a program's code begins on: that of the host, or the target itself."""
        return self.host or self

    @property
    def machine(self) -> str:
        """The text by which records of tuning are found. A GPU's are the same beside any host."""
        products = " -products=tf32" if self.tf32 else ""
        return str(self) if self.host is None else f"{self.kind.name} -arch={self.cpu}{products}"

    @cached_property
    def arch(self) -> str:
        """One of x86_64, aarch64, arm, riscv64, riscv32, wasm32, nvptx64."""
        return arch_of(self.triple)

    @cached_property
    def vector_bits(self) -> int:
        """Bits of the vectors to compute with; 0 where there are none."""
        return vector_bits(self.arch, self.features)

    @cached_property
    def vector_registers(self) -> int:
        """How many vectors registers hold."""
        return vector_registers(self.arch, self.features)

    def has(self, feature: str) -> bool:
        """Whether the machine has a feature, by LLVM's name."""
        return feature in self.features or f"+{feature}" in self.handed_on

    def lanes(self, dtype: DType | str) -> int:
        """How many elements of a type one vector holds; at least one."""
        return max(1, self.vector_bits // (8 * DType.of(dtype).itemsize))

    @property
    def has_fma(self) -> bool:
        """Whether a multiply-add is one instruction that rounds once."""
        if self.arch == "arm":
            return self.has("vfp4d16sp")
        return self.arch in ("aarch64", "riscv64", "riscv32", "nvptx64") or self.has("fma")

    @property
    def flushes_denormals(self) -> bool:
        """Whether threads can be told to treat denormals as zeros, for float32 and float64."""
        return self.kind.sets_float_state and self.arch in ("x86_64", "aarch64")

    @property
    def fma_ports(self) -> int:
        """Multiply-adds of full vector width that start in each cycle."""
        return self.ports or self._description.fma_ports

    @property
    def fma_latency(self) -> int:
        """Cycles before the result of a multiply-add can be added to."""
        return self._description.fma_latency

    @property
    def timing(self) -> CpuTiming:
        """How fast a core, its memory and its threads are: what cost models ask for."""
        return self._description.timing

    @property
    def stack_limit(self) -> int:
        """Bytes of buffers that a function may have on its stack."""
        return 1024 if self.is_bare else 1 << 20

    @property
    def chains(self) -> int:
        """Vectors for which long chains of operations find registers side by side."""
        return max(1, self.vector_registers // 8)

    @property
    def has_masks(self) -> bool:
        """Whether masked vector loads and stores are single cheap instructions."""
        return self.has("avx512vl") or self.has("v")

    @property
    def has_reciprocals(self) -> bool:
        """Whether an instruction gives reciprocals of float32 that are a bit off, so well that one
        step makes them exact, in less time than a division."""
        return self.kind.device == "gpu" or self.has("avx512vl")

    @property
    def has_lane_fma(self) -> bool:
        """Whether a multiply-add takes one lane of a register as its factor, with no broadcast."""
        return self.arch == "aarch64" and self.has("neon")

    @property
    def has_widening_fma(self) -> bool:
        """Whether a multiply-add of integers takes factors of half the width of its sum."""
        return self.arch in ("aarch64", "arm") and self.has("neon")

    @property
    def keeps_constants(self) -> bool:
        """Whether LLVM holds vectors of constants in registers through loops that do not use them,
        where these are in a loop together with one that does."""
        return self.arch == "x86_64"

    @property
    def gains_by_streaming(self) -> bool:
        """Whether a line that is written as a whole is read first all the same, unless its stores
        bypass the caches."""
        return self.arch == "x86_64"

    @property
    def writes_whole_lines(self) -> bool:
        """Whether a line that ordinary stores cover is written without being read first."""
        return self.arch == "aarch64"

    @property
    def shuffles_by_parts(self) -> bool:
        """Whether cheap shuffles move lanes only within each 16 bytes of a vector."""
        return self.arch == "x86_64"

    @property
    def has_bf16_products(self) -> bool:
        """Whether products of bfloat16 summed in float32 are instructions."""
        return any(map(self.has, ("amx-bf16", "avx512bf16", "bf16")))

    @property
    def has_byte_products(self) -> bool:
        """Whether products of bytes, summed in int32, are faster than of floats: there are
        instructions for them, or none for floats."""
        if self.gpu is not None:
            return self.gpu.multiplies("int8")
        instructions = ("dotprod", "avx512vnni", "avxvnni", "amx-int8")
        return not self.has_float_unit or any(map(self.has, instructions))

    @property
    def has_pair_products(self) -> bool:
        """Whether products of numbers of 16 bits, summed in pairs, are faster than of floats."""
        return self.arch == "x86_64" and self.has("avx2")

    @property
    def has_float_unit(self) -> bool:
        """Whether arithmetic on float32 is instructions, not calls of the compiler's library."""
        needs = {"arm": "vfp2sp", "riscv64": "f", "riscv32": "f"}.get(self.arch)
        return needs is None or self.has(needs)

    @property
    def has_nan_extremes(self) -> bool:
        """Whether one instruction gives the lesser or greater of two floats and passes on NaN."""
        return self.arch in ("aarch64", "wasm32")

    @property
    def prefers_512(self) -> bool:
        """Whether 512-bit vectors exist and are not declined with `+prefer-256-bit`."""
        return self.vector_bits >= 512

    @property
    def pointer_bits(self) -> int:
        return 32 if self.arch in ("arm", "riscv32", "wasm32") else 64

    @property
    def index_bits(self) -> int:
        """How wide registers for arithmetic on indices are."""
        return 32 if self.arch in ("arm", "riscv32") else 64

    @property
    def is_bare(self) -> bool:
        """Whether there is no operating system: no threads, no heap, no C library."""
        return is_bare(self.triple)

    @property
    def has_threads(self) -> bool:
        """Whether parallel loops run on several threads."""
        # The thread pool is written for addresses of 64 bits.
        return self.pointer_bits == 64 and not self.is_bare

    @property
    def llvm_cpu(self) -> str:
        """The processor's name for LLVM."""
        return self._description.llvm_name or self.cpu

    @property
    def llvm_features(self) -> str:
        """The feature string for LLVM, signs and all."""
        flags = [f"+{f}" for f in sorted(self.features)]
        flags += [f"-{f}" for f in sorted(self._description.features - self.features)]
        # LLVM's tuning for some processors halves vectors that we choose with open eyes.
        if self.arch == "x86_64" and self.prefers_512:
            flags.append("-prefer-256-bit")
        return ",".join((*flags, *self.handed_on))

    @property
    def _description(self) -> Cpu:
        return cpus(self.arch)[self.cpu]

    def __str__(self) -> str:
        if self.host is not None:
            return f"{self.machine} {str(self.host).partition(' ')[2]}"
        words = [self.kind.name, f"-mtriple={self.triple}", f"-mcpu={self.cpu}"]
        if mattr := self._mattr():
            words.append(f"-mattr={','.join(mattr)}")
        words.append(f"-num-cores={self.cores}")
        described = self._description.caches
        for name, size, known in zip(Caches._fields, self.caches, described, strict=True):
            if size != known:
                words.append(f"-{name}={format_size(size)}")
        if self.fma_ports != self._description.fma_ports:
            words.append(f"-fma-ports={self.fma_ports}")
        return " ".join(words)

    def __repr__(self) -> str:
        return f"Target.of({str(self)!r})"

    def _mattr(self) -> list[str]:
        """How the features differ from the processor's, in as few words as will do."""
        described = _features_of(self._description, self.kind)
        added = outermost(self.arch, self.features - described)
        removed = roots(self.arch, described - self.features)
        return [*(f"+{f}" for f in added), *(f"-{f}" for f in removed), *self.handed_on]


def _resolve(options: TargetOptions) -> Target:
    triple = normalize_triple(options.mtriple) if options.mtriple else None
    cpu = _choose_cpu(options.mcpu, triple)
    triple = triple or cpu.triple or default_triple(cpu.arch, host_triple())
    target = Target(
        triple,
        cpu.name,
        _features_of(cpu, options.kind),
        1 if is_bare(triple) else options.num_cores or host_cores(),
        _choose_caches(cpu.caches, options),
        kind=options.kind,
        ports=0 if options.fma_ports == cpu.fma_ports else options.fma_ports or 0,
    )
    if options.mattr and not options.kind.uses_features:
        raise UserError(
            f"target option -mattr={','.join(options.mattr)} is of no use",
            reason=f"code of kind {options.kind.name!r} asks nothing of a processor beyond its"
            " architecture",
            remedy="leave it out, or compile for target 'llvm'",
        )
    for flag in options.mattr:
        target = _with_flag(target, flag)
    return target


def _resolve_gpu(options: TargetOptions) -> Target:
    gpu = find_gpu(options.arch or (host_gpu() if options.kind.name == "cuda" else _EXECUTED))
    described = cpus(NVPTX)[gpu.name]
    made = Target(
        NVPTX_TRIPLE,
        gpu.name,
        described.features,
        gpu.multiprocessors,
        described.caches,
        kind=options.kind,
        host=_resolve(options._replace(kind=KINDS["llvm"], arch=None, products=None)),
    )
    return made.with_tf32() if options.products == "tf32" else made


def _features_of(cpu: Cpu, kind: TargetKind) -> Features:
    """What code of a kind may use of a processor."""
    return cpu.features if kind.uses_features else generic(cpu.arch).features


def _choose_cpu(name: str | None, triple: str | None) -> Cpu:
    host = host_triple()
    if triple and name is None:
        return generic(arch_of(triple))
    if name in (None, "native"):
        if triple and arch_of(triple) != arch_of(host):
            raise UserError(
                f"target option -mcpu=native with -mtriple={triple}",
                reason=f"this machine is {arch_of(host)}",
                remedy="name the processor",
            )
        return host_cpu()
    archs = (arch_of(triple),) if triple else tuple(dict.fromkeys((arch_of(host), *ARCHITECTURES)))
    return find_cpu(name or "", archs)


def _choose_caches(known: Caches, options: TargetOptions) -> Caches:
    given = {name: getattr(options, name) for name in Caches._fields}
    return known._replace(**{name: size for name, size in given.items() if size is not None})


def _with_flag(target: Target, flag: str) -> Target:
    sign, feature, arch = flag[0], flag[1:], target.arch
    check_known(arch, feature)
    if feature not in reasoned_about(arch):
        others = [f for f in target.handed_on if f[1:] != feature]
        return replace(target, handed_on=tuple(sorted([*others, flag])))
    change = enable if sign == "+" else disable
    return replace(target, features=change(arch, target.features, [feature]))
