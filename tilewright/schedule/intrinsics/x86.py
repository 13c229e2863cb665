"""Dot products and multiply-adds of x86-64: VNNI, AVX-512 BF16, pairs of 16 bits, FMA.

`vpdpbusd` takes unsigned bytes first and signed ones second. `vdpbf16ps` treats subnormal numbers
as zero. Machines without VNNI have `vpmaddwd`: an addition follows it, and bytes are widened for it
(`rules.widen`).
"""

from __future__ import annotations

from tilewright.ir import (
    Buffer,
    DType,
    For,
    Function,
    Iter,
    Load,
    Ramp,
    Store,
    Var,
    broadcast,
    call,
    const,
    make_block,
)
from tilewright.schedule.intrinsics.dot import Dot
from tilewright.schedule.tensor_intrin import TensorIntrin, register_maker

_U8, _S8, _S16, _S32 = (DType.of(t) for t in ("uint8", "int8", "int16", "int32"))
_BF16, _F32 = DType.of("bfloat16"), DType.of("float32")


def _dot(name: str, llvm: str, a: DType, b: DType, out: DType, bits: int, *needs: str) -> Dot:
    full = f"llvm.x86.{llvm}.{bits}"
    return Dot(f"x86.{name}.{bits}", full, a, b, out, 1, bits // 32, needs)


#: LLVM's name of the pairwise multiply-add for each vector width in bits, and its feature.
_PAIRS = {
    512: ("avx512.pmaddw.d.512", "avx512bw"),
    256: ("avx2.pmadd.wd", "avx2"),
    128: ("sse2.pmadd.wd", "sse2"),
}


def _pairs(bits: int) -> Dot:
    """Sums of pairs, which wrap around like all sums of 32 bits."""
    llvm, needs = _PAIRS[bits]
    name, lanes = f"x86.vpmaddwd.{bits}", bits // 32
    return Dot(name, f"llvm.x86.{llvm}", _S16, _S16, _S32, 1, lanes, (needs,), accumulates=False)


def _family(bits: int) -> list[Dot]:
    """All dot products on vectors of `bits` bits."""
    narrow = bits < 512
    vnni = ("avxvnni", "avx512vnni avx512vl") if narrow else ("avx512vnni",)
    bf16 = ("avx512bf16 avx512vl",) if narrow else ("avx512bf16",)
    mixed = _dot("vpdpbusd", "avx512.vpdpbusd", _U8, _S8, _S32, bits, *vnni)
    found = [
        mixed,
        mixed.with_columns_first(f"x86.vpdpbusd_columns.{bits}"),
        _dot("vpdpwssd", "avx512.vpdpwssd", _S16, _S16, _S32, bits, *vnni),
        _dot("vdpbf16ps", "avx512bf16.dpbf16ps", _BF16, _BF16, _F32, bits, *bf16),
    ]
    found.append(_pairs(bits))
    if narrow:
        int8 = "avxvnniint8"
        found.append(_dot("vpdpbssd", "avx2.vpdpbssd", _S8, _S8, _S32, bits, int8))
        found.append(_dot("vpdpbuud", "avx2.vpdpbuud", _U8, _U8, _S32, bits, int8))
    return found


#: The widest first.
X86_DOTS: tuple[Dot, ...] = tuple(
    dot.register() for bits in (512, 256, 128) for dot in _family(bits)
)


# ---- multiply-add -------------------------------------------------------------------------------


def _fma(lanes: int, needs: str) -> TensorIntrin:
    """C[j] += A[0] * B[j]"""
    a, b, c = (Buffer(n, _F32, (size,)) for n, size in (("A", 1), ("B", lanes), ("C", lanes)))
    j, vj = Var("j"), Var("vj")
    update = Store(c, (vj,), c[vj] + a[0] * b[vj])
    block = make_block("D", [Iter(vj, const(lanes), "spatial")], [j], update)
    whole = (Ramp(const(0), const(1), lanes),)
    scaled = call("fma", broadcast(a[0], lanes), Load(b, whole), Load(c, whole))
    return TensorIntrin(
        f"x86.fma.{lanes * 32}",
        Function("description", (a, b, c), For(j, const(lanes), "serial", block)),
        Function("implementation", (a, b, c), Store(c, whole, scaled)),
        (needs,),
    )


register_maker("x86.fma.512", lambda: _fma(16, "avx512f"))
register_maker("x86.fma.256", lambda: _fma(8, "fma"))
