"""The RISC-V and WebAssembly processors; see `cpus_x86` for the format."""

from __future__ import annotations

from tilewright.target.cpu import Cpu, kib
from tilewright.target.features import enable
from tilewright.target.timing import MICROCONTROLLER


def _rv64(features: str) -> frozenset[str]:
    return enable("riscv64", frozenset(), features.split())


def _rv32(name: str, features: str) -> Cpu:
    """A single-issue microcontroller, whose memory is as fast as a cache."""
    known = enable("riscv32", frozenset(), features.split())
    caches, timing = kib(64, 0, 0, line=32), MICROCONTROLLER
    return Cpu(name, "riscv32", known, caches, 1, 4, llvm_name="generic-rv32", timing=timing)


# The names of the two instruction sets stand for LLVM's generic processor with those sets.
_RV64GC = Cpu("rv64gc", "riscv64", _rv64("m a f d c"), kib(32, 512, 0), 1, llvm_name="generic-rv64")
_RV64GCV = _RV64GC.variant("rv64gcv", "v")._replace(llvm_name="generic-rv64")
_U74 = _RV64GC.variant("sifive-u74", "", kib(32, 2048, 0), fma_latency=5)
_X280 = _RV64GCV.variant("sifive-x280", "zba zbb zfh zvfh zvl512b", kib(32, 2048, 0))
_P670 = _RV64GCV.variant("sifive-p670", "zba zbb zbs zfhmin zvbb", kib(64, 2048, 8192))
_X60 = _RV64GCV.variant("spacemit-x60", "zba zbb zbs zfh zicond zvfh zvl256b", kib(32, 512, 0))

_WASM_BASE = "bulk-memory bulk-memory-opt multivalue mutable-globals nontrapping-fptoint"
_WASM = Cpu(
    "generic",
    "wasm32",
    frozenset([*_WASM_BASE.split(), "reference-types", "sign-ext"]),
    kib(32, 512, 4096),
    fma_ports=1,
)
_WASM_MVP = _WASM._replace(name="mvp", features=frozenset())
_WASM_LIME1 = _WASM_MVP.variant(
    "lime1",
    "bulk-memory-opt extended-const multivalue mutable-globals nontrapping-fptoint sign-ext",
)
_WASM_EDGE = _WASM.variant(
    "bleeding-edge", "atomics exception-handling extended-const fp16 relaxed-simd tail-call"
)

#: The generic one of each architecture first.
CPUS: tuple[Cpu, ...] = (
    *(_RV64GC, _RV64GCV, _U74, _X280, _P670, _X60),
    *(_rv32(n, " ".join(n.removeprefix("rv32i"))) for n in ("rv32imc", "rv32imac", "rv32imafc")),
    *(_WASM, _WASM_MVP, _WASM_LIME1, _WASM_EDGE),
)
