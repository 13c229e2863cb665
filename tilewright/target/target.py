"""`Target`: a machine to generate code for, and its capabilities."""

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

#: The GPU that the executor emulates by default.
_EXECUTED: Final = "sm_90a"


@dataclass(frozen=True, repr=False)
class Target:
    """A machine to generate code for; `Target.of` makes one from its text.

    `str(target)` is a text for an equal target, on this machine and on any other.
    """

    triple: str
    #: The processor's name in this package.
    cpu: str
    #: The processor's features, by LLVM's names.
    features: Features
    #: The number of cores to assume.
    cores: int
    caches: Caches
    #: Other LLVM features with their signs, passed on to LLVM.
    handed_on: tuple[str, ...] = ()
    kind: TargetKind = KINDS["llvm"]
    #: The processor that launches a GPU's code.
    host: Target | None = None
    #: Whether a GPU's float32 products may use TF32.
    tf32: bool = False
    #: Multiply-adds started per cycle; 0: the processor's default.
    ports: int = 0

    @staticmethod
    def of(value: Target | str = "llvm") -> Target:
        """The target of a text; plain `llvm` is this machine with all its features.

        `c` is this machine through C, which uses only the architecture's baseline. Options are
        `-mcpu=NAME` (or `native`), `-mattr=+a,-b`, `-mtriple=T`, `-num-cores=N`, the cache sizes
        `-l1d=48K -l2=2M -l3=32M -line=64`, and `-fma-ports=2`. A triple without a processor means
        the baseline machine of that kind.

        `cuda` is the GPU of this machine, or that of `-arch=sm_90a`; `-products=tf32` lets float32
        products use only ten fraction bits of their factors. The other options describe the
        host.
        """
        if isinstance(value, Target):
            return value
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UserError(f"{value!r} is no target", remedy="pass a text such as 'llvm'")
        options = parse_options(value)
        return _resolve(options) if options.kind.device == "cpu" else _resolve_gpu(options)

    @cached_property
    def gpu(self) -> Gpu | None:
        """The GPU's parameters; None for CPU targets."""
        return GPUS[self.cpu]._replace(tf32=self.tf32) if self.kind.device == "gpu" else None

    def with_tf32(self) -> Target:
        """The target with TF32 products, which GPUs have since sm_80."""
        if self.gpu is None or not self.gpu.has_warp_products:
            raise UserError(
                "precision tf32 is for GPUs since sm_80",
                reason=f"the target is {self}",
                remedy='use "float32"',
            )
        return replace(self, tf32=True)

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Supported vector widths in bits: the preferred one, then the widest first."""
        others = vector_widths(self.arch, self.features)
        return tuple(dict.fromkeys((self.vector_bits, *others)))

    @property
    def widest_vector(self) -> int:
        """The width of the widest vector instructions, preferred or not."""
        return max(self.vector_widths)

    def with_vectors(self, bits: int) -> Target:
        """The target with another of its vector widths."""
        return replace(self, features=of_width(self.arch, self.features, bits))

    @property
    def runs_on(self) -> Target:
        """The processor that programs start on: the host, or the target itself."""
        return self.host or self

    @property
    def machine(self) -> str:
        """The key of tuning records. For a GPU it does not depend on the host."""
        products = " -products=tf32" if self.tf32 else ""
        return str(self) if self.host is None else f"{self.kind.name} -arch={self.cpu}{products}"

    @cached_property
    def arch(self) -> str:
        """One of x86_64, aarch64, arm, riscv64, riscv32, wasm32, nvptx64."""
        return arch_of(self.triple)

    @cached_property
    def vector_bits(self) -> int:
        """The preferred vector width in bits; 0 without vectors."""
        return vector_bits(self.arch, self.features)

    @cached_property
    def vector_registers(self) -> int:
        """The number of vector registers."""
        return vector_registers(self.arch, self.features)

    def has(self, feature: str) -> bool:
        """Whether the machine has a feature, by LLVM's name."""
        return feature in self.features or f"+{feature}" in self.handed_on

    def lanes(self, dtype: DType | str) -> int:
        """The elements of a type in one vector; at least one."""
        return max(1, self.vector_bits // (8 * DType.of(dtype).itemsize))

    @property
    def has_fma(self) -> bool:
        """Whether there is a fused multiply-add instruction."""
        if self.arch == "arm":
            return self.has("vfp4d16sp")
        return self.arch in ("aarch64", "riscv64", "riscv32", "nvptx64") or self.has("fma")

    @property
    def flushes_denormals(self) -> bool:
        """Whether code can set threads to flush denormals, for float32 and float64."""
        return self.kind.sets_float_state and self.arch in ("x86_64", "aarch64")

    @property
    def fma_ports(self) -> int:
        """Multiply-adds of full vector width started per cycle."""
        return self.ports or self._description.fma_ports

    @property
    def fma_latency(self) -> int:
        """Latency of accumulating with multiply-adds, in cycles."""
        return self._description.fma_latency

    @property
    def timing(self) -> CpuTiming:
        """The speed of a core, its memory and its threads, for cost models."""
        return self._description.timing

    @property
    def stack_limit(self) -> int:
        """Most bytes of buffers on a function's stack."""
        return 1024 if self.is_bare else 1 << 20

    @property
    def chains(self) -> int:
        """The number of vectors whose long dependency chains can be interleaved in registers."""
        return max(1, self.vector_registers // 8)

    @property
    def has_masks(self) -> bool:
        """Whether masked vector loads and stores are single cheap instructions."""
        return self.has("avx512vl") or self.has("v")

    @property
    def has_reciprocals(self) -> bool:
        """Whether there is an approximate float32 reciprocal instruction that, with one Newton
        step, is exact and faster than a division."""
        return self.kind.device == "gpu" or self.has("avx512vl")

    @property
    def has_lane_fma(self) -> bool:
        """Whether a multiply-add can take one lane of a register as a factor (no broadcast)."""
        return self.arch == "aarch64" and self.has("neon")

    @property
    def has_widening_fma(self) -> bool:
        """Whether integer multiply-adds can take factors of half the accumulator's width."""
        return self.arch in ("aarch64", "arm") and self.has("neon")

    @property
    def keeps_constants(self) -> bool:
        """Whether LLVM keeps vector constants in registers through loops that do not use them, if
        these loops share an enclosing loop with one that does."""
        return self.arch == "x86_64"

    @property
    def gains_by_streaming(self) -> bool:
        """Whether a fully overwritten line is read first, unless its stores bypass the caches."""
        return self.arch == "x86_64"

    @property
    def writes_whole_lines(self) -> bool:
        """Whether a line that ordinary stores fully overwrite is not read first."""
        return self.arch == "aarch64"

    @property
    def shuffles_by_parts(self) -> bool:
        """Whether cheap shuffles only move lanes within 16-byte parts of a vector."""
        return self.arch == "x86_64"

    @property
    def has_bf16_products(self) -> bool:
        """Whether there are bfloat16 products with float32 accumulation."""
        return any(map(self.has, ("amx-bf16", "avx512bf16", "bf16")))

    @property
    def has_byte_products(self) -> bool:
        """Whether int8 products with int32 sums are faster than float products: there are
        instructions for them, or none for floats."""
        if self.gpu is not None:
            return self.gpu.multiplies("int8")
        instructions = ("dotprod", "avx512vnni", "avxvnni", "amx-int8")
        return not self.has_float_unit or any(map(self.has, instructions))

    @property
    def has_pair_products(self) -> bool:
        """Whether 16-bit integer products, summed in pairs, are faster than float products."""
        return self.arch == "x86_64" and self.has("avx2")

    @property
    def has_float_unit(self) -> bool:
        """Whether float32 arithmetic is in hardware, not in the compiler's library."""
        needs = {"arm": "vfp2sp", "riscv64": "f", "riscv32": "f"}.get(self.arch)
        return needs is None or self.has(needs)

    @property
    def has_nan_extremes(self) -> bool:
        """Whether one instruction gives the minimum or maximum of floats and propagates NaN."""
        return self.arch in ("aarch64", "wasm32")

    @property
    def prefers_512(self) -> bool:
        """Whether 512-bit vectors exist and are not disabled by `+prefer-256-bit`."""
        return self.vector_bits >= 512

    @property
    def pointer_bits(self) -> int:
        return 32 if self.arch in ("arm", "riscv32", "wasm32") else 64

    @property
    def index_bits(self) -> int:
        """The register width for index arithmetic."""
        return 32 if self.arch in ("arm", "riscv32") else 64

    @property
    def is_bare(self) -> bool:
        """Whether there is no operating system: no threads, no heap, no C library."""
        return is_bare(self.triple)

    @property
    def has_threads(self) -> bool:
        """Whether parallel loops run on several threads."""
        # The thread pool assumes 64-bit addresses.
        return self.pointer_bits == 64 and not self.is_bare

    @property
    def llvm_cpu(self) -> str:
        """The processor's name for LLVM."""
        return self._description.llvm_name or self.cpu

    @property
    def llvm_features(self) -> str:
        """The feature string for LLVM."""
        flags = [f"+{f}" for f in sorted(self.features)]
        flags += [f"-{f}" for f in sorted(self._description.features - self.features)]
        # LLVM's tuning for some processors would halve the vectors that we chose deliberately.
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
        """The difference of the features from the processor's, in the fewest words."""
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
    """The features of a processor that code of a kind may use."""
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
