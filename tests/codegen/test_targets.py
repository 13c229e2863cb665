"""Object code for every target, from any host: LLVM accepts our code, and no library is needed."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.ir import parse_function
from tilewright.runtime.objectfile import names_of
from tilewright.support.errors import UserError

X86 = ["x86-64", "x86-64-v3", "skylake-avx512", "sapphirerapids"]
ARM = ["cortex-a53", "neoverse-n1", "neoverse-v1"]
OTHERS = ["rv64gc", "rv64gcv"]
ELF = [
    *(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}" for cpu in X86),
    *(f"llvm -mtriple=aarch64-unknown-linux-gnu -mcpu={cpu}" for cpu in ARM),
    *(f"llvm -mtriple=riscv64-unknown-linux-gnu -mcpu={cpu}" for cpu in OTHERS),
]
WASM = [
    "llvm -mtriple=wasm32-unknown-unknown",
    "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128",
]
#: What a kernel may ask of its surroundings: the thread pool and memory.
ALLOWED = {"tw_pool_run", "malloc", "free", "memcpy", "memset", "memmove"}

FUNCTIONS = {
    "vectorized": """
def f(A: f32[n], B: f32[n], C: i32[n], D: f64[n]):
    for i in range(n // 8):
        for j in vectorized(8):
            B[i * 8 + j] = max(sqrt(A[i * 8 + j]) * 2.0 + B[i * 8 + j], 0.0)
            C[i * 8 + j] = i32(floor(A[i * 8 + j])) // i32(3) + C[i * 8 + j] % (C[i * 8 + 7 - j])
            D[i * 8 + j] = round(f64(A[i * 8 + j]) / D[i * 8 + j])
""",
    "masked": """
def f(A: f32[n], B: f32[n], C: i8[n]):
    for i in range((n + 6) // 7):
        for j in vectorized(7):
            if i * 7 + j < n:
                B[i * 7 + j] = exp(A[i * 7 + j]) if A[i * 7 + j] > 0.0 else A[n - 1 - i * 7 - j]
                C[i * 7 + j] = i8(A[i * 7 + j])
""",
    "parallel": """
def f(A: f32[n, 64], B: f32[n, 64], s: f32):
    T = alloc(f32[n, 64])
    for i in parallel(n):
        L = alloc(f32[64], scope="local")
        H = alloc(f32[n, 1000])
        for j in vectorized(16):
            L[j] = tanh(A[i, j]) * s
            T[i, j] = L[15 - j]
        H[i, 3] = 1.0
        assert A[i, 0] == A[i, 0], ("NaN at {}", i)
        B[i, 0] = H[i, 3] + T[i, 1]
""",
    "small formats": """
def f(A: f16[n], B: bf16[n], C: f8e4m3fn[n], D: f8e5m2fnuz[n], E: f4e2m1fn[n], F: i4[n], G: f64[n]):
    for i in range(n // 8):
        for j in vectorized(8):
            A[i * 8 + j] = A[i * 8 + j] * f16(B[i * 8 + j]) + sigmoid(f16(G[i * 8 + j]))
            B[i * 8 + j] = bf16(A[i * 8 + j]) + bf16(C[i * 8 + j])
            D[i * 8 + j] = f8e5m2fnuz(A[i * 8 + j])
            E[i * 8 + j] = f4e2m1fn(G[i * 8 + j])
            F[i * 8 + j] = i4(C[i * 8 + j])
            G[i * 8 + j] = f64(A[i * 8 + j]) + f64(F[i * 8 + j]) + f64(E[i * 8 + j])
""",
    "wide integers": """
def f(A: i64[n], B: u64[n], C: f32[n]):
    for i in range(n // 2):
        for j in vectorized(2):
            A[i * 2 + j] = A[i * 2 + j] * 3 + i64(C[i * 2 + j])
            B[i * 2 + j] = popcount(B[i * 2 + j]) + clz(B[i * 2 + j]) + u64(C[i * 2 + j])
            C[i * 2 + j] = f32(A[i * 2 + j]) + f32(B[i * 2 + j])
""",
}


def build(text: str, target: str) -> tw.Module:
    return tw.build(tw.Schedule(parse_function(text)), target)


@pytest.mark.parametrize("target", ELF)
@pytest.mark.parametrize("text", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_object_code(text: str, target: str) -> None:
    module = build(text, target)
    names = names_of(module.object_code)
    assert names.architecture == module.target.arch
    assert names.defined == {"f", "f.entry", "f.workspace"}
    assert names.needed <= ALLOWED


@pytest.mark.parametrize("target", WASM)
@pytest.mark.parametrize("text", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_webassembly(text: str, target: str) -> None:
    module = build(text, target)
    assert module.object_code.startswith(b"\0asm")
    imported = {w.split("@")[0] for line in module.asm.splitlines() for w in _called(line)}
    assert imported <= ALLOWED - {"tw_pool_run"}
    assert ("v128" in module.asm) == ("simd128" in target)


def _called(line: str) -> list[str]:
    """The function that a line of assembly calls, if it is none of the kernel's own."""
    words = line.split()
    is_call = len(words) > 1 and words[0] in ("call", "return_call")
    return [w.strip(",") for w in words[1:2]] if is_call and not words[1].startswith("f") else []


@pytest.mark.parametrize(
    ("cpu", "instruction"),
    [
        ("x86-64-v3", "vcvtph2ps"),
        ("x86-64", "punpcklwd"),
        ("neoverse-n1", "fcvtl"),
        ("neoverse-v1", "bfcvt"),
    ],
)
def test_conversions_use_what_the_target_has(cpu: str, instruction: str) -> None:
    text = """
def f(A: f16[64], B: bf16[64], C: f32[64]):
    for i in range(8):
        for j in vectorized(8):
            C[i * 8 + j] = f32(A[i * 8 + j])
            B[i * 8 + j] = bf16(C[i * 8 + j])
"""
    assert instruction in build(text, f"llvm -mcpu={cpu}").asm


def test_foreign_code_does_not_run_here() -> None:
    here = tw.Target.of("llvm").arch
    foreign = next(t for t in ELF if here not in t)
    with pytest.raises(UserError, match="f cannot run here: it is compiled for llvm -mtriple="):
        build(FUNCTIONS["vectorized"], foreign)()


@pytest.mark.parametrize(("cpu", "has_it"), [("neoverse-n1", 0), ("x86-64", 0), ("haswell", 1)])
def test_instructions_that_a_target_lacks_are_refused(cpu: str, has_it: int) -> None:
    """LLVM would end the process."""
    text = """
def f(A: i16[16], B: i16[16], C: i32[8]):
    C[ramp(0, 1, 8)] = llvm.x86.avx2.pmadd.wd(A[ramp(0, 1, 16)], B[ramp(0, 1, 16)])
"""
    if has_it:
        assert "vpmaddwd" in build(text, f"llvm -mcpu={cpu}").asm
        return
    with pytest.raises(UserError, match=r"llvm\.x86\.avx2\.pmadd\.wd: that needs avx2"):
        build(text, f"llvm -mcpu={cpu}")
