"""Instructions of x86-64 that few machines have, emulated as the manual describes them.

A module that was built for such a machine is compiled once more for this one, with calls of our
own in place of the instructions: so packing, layouts and loops are checked numerically everywhere.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from tests.emulated.emulator import needed_emulator
from tilewright.codegen.llvm.backend import LlvmCode
from tilewright.codegen.llvm.machine import emit_object, optimize, parse, target_machine
from tilewright.codegen.llvm.threadpool import threadpool_object
from tilewright.runtime import NativeFunction, device, install, is_installed
from tilewright.target import why_not_here

Array = np.ndarray[Any, Any]


def run_anywhere(module: tw.Module, monkeypatch: Any, *args: Array) -> None:
    """Run `module` on this machine, whatever it was built for.

    Code of another architecture runs under a full emulator; the test is skipped without one.
    """
    if module.target.arch == "x86_64":
        run_emulated(module, monkeypatch, *args)
    elif why_not_here(module.target.triple, module.target.features):
        needed_emulator(module.target.arch).run_kernel(module, *args)
    else:
        module(*args)


def run_emulated(module: tw.Module, monkeypatch: Any, *args: Array) -> MatrixUnit:
    """Run `module`, which is for x86-64, here; gives the matrix unit, which knows what was done."""
    assert module.target.arch == "x86_64", "LLVM aborts at instructions of other architectures"
    here = tw.Target.of("llvm")
    unit = MatrixUnit()
    if not is_installed():
        install(threadpool_object(here.triple))
    assert isinstance(module._code, LlvmCode)
    code = _translated(module._code.generated, here)
    known = device.symbols()
    monkeypatch.setattr(device, "symbols", lambda: {**known, **unit.addresses})
    native = NativeFunction(code, module.signature, module._code.messages, 1)
    native(*args)
    unit.finish()
    return unit


def _translated(text: str, here: tw.Target) -> bytes:
    text = re.sub(r'target triple = "[^"]*"', f'target triple = "{here.triple}"', text)
    text = text.replace('"llvm.x86.', '"emulated.')
    text = re.sub(r'"llvm\.aarch64\.(get|set)\.fpcr"', r'"emulated.\1.fpcr"', text)
    for name, definition in _VECTOR_DEFINITIONS.items():
        pattern = rf'declare [^\n]*"{re.escape(name)}"[^\n]*\n'
        text = re.sub(pattern, lambda _, own=definition: own, text)
    machine = target_machine(here.triple, here.llvm_cpu, here.llvm_features)
    parsed = parse(text)
    optimize(parsed, machine)
    return emit_object(parsed, machine)


# ---- vectors ------------------------------------------------------------------------------------


def _dot(
    name: str,
    lanes: int,
    group: int,
    element: str,
    extend: tuple[str, str],
    *,
    accumulates: bool = True,
) -> str:
    """Every 32-bit lane adds `group` products of neighbouring elements."""
    n = lanes * group
    out, product, add = ("float", "fmul", "fadd") if element == "bfloat" else ("i32", "mul", "add")
    start = f"<{lanes} x {out}> %c, " if accumulates else ""
    lines = [
        f'define <{lanes} x {out}> @"{name}"({start}<{n} x {element}> %a, '
        f"<{n} x {element}> %b) alwaysinline {{",
        f"  %x = {extend[0]} <{n} x {element}> %a to <{n} x {out}>",
        f"  %y = {extend[1]} <{n} x {element}> %b to <{n} x {out}>",
        f"  %p = {product} <{n} x {out}> %x, %y",
    ]
    total = "%c" if accumulates else "zeroinitializer"
    for k in range(group):
        mask = ", ".join(f"i32 {lane * group + k}" for lane in range(lanes))
        both = f"<{n} x {out}> %p, <{n} x {out}> poison"
        lines.append(f"  %q{k} = shufflevector {both}, <{lanes} x i32> <{mask}>")
        lines.append(f"  %s{k} = {add} <{lanes} x {out}> {total}, %q{k}")
        total = f"%s{k}"
    return "\n".join([*lines, f"  ret <{lanes} x {out}> {total}", "}\n"])


#: The floating-point state is left as it is.
_VECTOR_DEFINITIONS: dict[str, str] = {
    name: f'define void @"{name}"(ptr %slot) alwaysinline {{ ret void }}\n'
    for name in ("emulated.sse.stmxcsr", "emulated.sse.ldmxcsr")
}
_VECTOR_DEFINITIONS["emulated.get.fpcr"] = 'define i64 @"emulated.get.fpcr"() { ret i64 0 }\n'
_VECTOR_DEFINITIONS["emulated.set.fpcr"] = 'define void @"emulated.set.fpcr"(i64) { ret void }\n'
for _bits in (128, 256, 512):
    for _stem, _element, _extend in (
        ("avx512.vpdpbusd", "i8", ("zext", "sext")),
        ("avx512.vpdpwssd", "i16", ("sext", "sext")),
        ("avx2.vpdpbssd", "i8", ("sext", "sext")),
        ("avx512bf16.dpbf16ps", "bfloat", ("fpext", "fpext")),
    ):
        _name = f"emulated.{_stem}.{_bits}"
        _group = 4 if _element == "i8" else 2
        _VECTOR_DEFINITIONS[_name] = _dot(_name, _bits // 32, _group, _element, _extend)

for _bits, _stem in ((512, "avx512.pmaddw.d.512"), (256, "avx2.pmadd.wd"), (128, "sse2.pmadd.wd")):
    _name = f"emulated.{_stem}"
    _VECTOR_DEFINITIONS[_name] = _dot(
        _name, _bits // 32, 2, "i16", ("sext", "sext"), accumulates=False
    )


def _extreme(name: str, op: str, lanes: int, kind: str, *, rounds: bool) -> str:
    """The second operand where the comparison does not hold, so where one of them is NaN.

    A first operand that is NaN is replaced before it is compared: LLVM takes a comparison and a
    selection for one instruction of Arm, which hands on a signalling NaN.
    """
    vector, last = f"<{lanes} x {kind}>", ", i32 %r" if rounds else ""
    relation = "ogt" if op == "max" else "olt"
    chosen = f"select <{lanes} x i1>"
    return (
        f'define {vector} @"{name}"({vector} %a, {vector} %b{last}) alwaysinline {{\n'
        f"  %n = fcmp uno {vector} %a, zeroinitializer\n"
        f"  %s = {chosen} %n, {vector} %b, {vector} %a\n"
        f"  %c = fcmp {relation} {vector} %s, %b\n"
        f"  %d = {chosen} %c, {vector} %s, {vector} %b\n"
        f"  ret {vector} %d\n}}\n"
    )


for _bits, _prefix, _suffix in ((128, "sse", ""), (256, "avx", ".256"), (512, "avx512", ".512")):
    for _width, _letter, _kind in ((32, "s", "float"), (64, "d", "double")):
        _lanes, _rounds = _bits // _width, _bits == 512
        _own = "sse2" if (_bits, _width) == (128, 64) else _prefix
        for _op in ("max", "min"):
            _name = f"emulated.{_own}.{_op}.p{_letter}{_suffix}"
            _VECTOR_DEFINITIONS[_name] = _extreme(_name, _op, _lanes, _kind, rounds=_rounds)


def _saturating_pack(name: str, bits: int, parts: int, *, signed: bool) -> str:
    """Two vectors of signed integers in half as many bits: in each part of 128 bits, those of the
    one, then those of the other."""
    each = 128 // bits
    lanes = each * parts
    low, high = (
        (-(2 ** (bits // 2 - 1)), 2 ** (bits // 2 - 1) - 1) if signed else (0, 2 ** (bits // 2) - 1)
    )
    wide, operand = f"<{2 * lanes} x i{bits}>", f"<{lanes} x i{bits}>"
    packed = f"<{2 * lanes} x i{bits // 2}>"
    places = [
        first + part * each + k
        for part in range(parts)
        for first in (0, lanes)
        for k in range(each)
    ]
    order = ", ".join(f"i32 {k}" for k in places)
    bounds = {"low": low, "high": high}
    vectors = {k: ", ".join([f"i{bits} {v}"] * (2 * lanes)) for k, v in bounds.items()}
    return (
        f'define {packed} @"{name}"({operand} %a, {operand} %b) alwaysinline {{\n'
        f"  %j = shufflevector {operand} %a, {operand} %b, <{2 * lanes} x i32> <{order}>\n"
        f"  %l = icmp slt {wide} %j, <{vectors['low']}>\n"
        f"  %m = select <{2 * lanes} x i1> %l, {wide} <{vectors['low']}>, {wide} %j\n"
        f"  %g = icmp sgt {wide} %m, <{vectors['high']}>\n"
        f"  %h = select <{2 * lanes} x i1> %g, {wide} <{vectors['high']}>, {wide} %m\n"
        f"  %r = trunc {wide} %h to {packed}\n"
        f"  ret {packed} %r\n}}\n"
    )


for _stem, _bits, _parts, _signed in (
    ("sse2.packssdw.128", 32, 1, True),
    ("sse2.packsswb.128", 16, 1, True),
    ("sse41.packusdw", 32, 1, False),
    ("sse2.packuswb.128", 16, 1, False),
    ("avx512.packssdw.512", 32, 4, True),
    ("avx512.packsswb.512", 16, 4, True),
    ("avx512.packusdw.512", 32, 4, False),
    ("avx512.packuswb.512", 16, 4, False),
):
    _name = f"emulated.{_stem}"
    _VECTOR_DEFINITIONS[_name] = _saturating_pack(_name, _bits, _parts, signed=_signed)


def _rounding_conversion(name: str, lanes: int, others: str) -> str:
    """Floats as the nearest integers; numbers that have none do not come this far."""
    floats, integers = f"<{lanes} x float>", f"<{lanes} x i32>"
    return (
        f"declare {floats} @llvm.roundeven.v{lanes}f32({floats})\n"
        f"declare {integers} @llvm.fptosi.sat.v{lanes}i32.v{lanes}f32({floats})\n"
        f'define {integers} @"{name}"({floats} %a{others}) alwaysinline {{\n'
        f"  %r = call {floats} @llvm.roundeven.v{lanes}f32({floats} %a)\n"
        f"  %i = call {integers} @llvm.fptosi.sat.v{lanes}i32.v{lanes}f32({floats} %r)\n"
        f"  ret {integers} %i\n}}\n"
    )


for _stem, _lanes, _others in (
    ("avx.cvt.ps2dq.256", 8, ""),
    ("avx512.mask.cvtps2dq.512", 16, ", <16 x i32> %s, i16 %m, i32 %o"),
):
    _name = f"emulated.{_stem}"
    _VECTOR_DEFINITIONS[_name] = _rounding_conversion(_name, _lanes, _others)


def _reciprocal(name: str, lanes: int) -> str:
    """Reciprocals of which 14 bits are right: the last nine of 23 are dropped."""
    floats, integers, mask = f"<{lanes} x float>", f"<{lanes} x i32>", f"i{max(8, lanes)} %m"
    ones, kept = (", ".join([v] * lanes) for v in ("float 1.0", "i32 -512"))
    return (
        f'define {floats} @"{name}"({floats} %a, {floats} %s, {mask}) alwaysinline {{\n'
        f"  %q = fdiv {floats} <{ones}>, %a\n"
        f"  %b = bitcast {floats} %q to {integers}\n"
        f"  %k = and {integers} %b, <{kept}>\n"
        f"  %r = bitcast {integers} %k to {floats}\n"
        f"  ret {floats} %r\n}}\n"
    )


for _lanes in (4, 8, 16):
    _name = f"emulated.avx512.rcp14.ps.{_lanes * 32}"
    _VECTOR_DEFINITIONS[_name] = _reciprocal(_name, _lanes)


_VECTOR_DEFINITIONS["emulated.avx512.permvar.sf.512"] = "\n".join(
    [
        'define <16 x float> @"emulated.avx512.permvar.sf.512"(<16 x float> %t, <16 x i32> %i) {',
        *(
            line
            for k in range(16)
            for line in (
                f"  %i{k} = extractelement <16 x i32> %i, i32 {k}",
                f"  %m{k} = and i32 %i{k}, 15",
                f"  %e{k} = extractelement <16 x float> %t, i32 %m{k}",
                f"  %r{k} = insertelement <16 x float> "
                f"{f'%r{k - 1}' if k else 'zeroinitializer'}, float %e{k}, i32 {k}",
            )
        ),
        "  ret <16 x float> %r15",
        "}\n",
    ]
)


# ---- matrix registers ---------------------------------------------------------------------------


class MatrixUnit:
    """AMX: eight registers of up to 16 rows of 64 bytes, once they are configured."""

    def __init__(self) -> None:
        self.tiles = np.zeros((8, 16, 64), np.uint8)
        self.is_configured = False
        self.faults: list[str] = []
        self.counts: dict[str, int] = {}
        operations: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
            "ldtilecfg": (self._configure, (ctypes.c_void_p,)),
            "tilerelease": (self._release, ()),
            "tilezero": (self._zero, (ctypes.c_uint8,)),
            "tileloadd64": (self._load, (ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64)),
            "tilestored64": (self._store, (ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64)),
        }
        for name, types in _PRODUCTS.items():
            operations[name] = (self._product(*types), (ctypes.c_uint8,) * 3)
        self._callbacks = {
            name: ctypes.CFUNCTYPE(None, *types)(self._counted(name, run))
            for name, (run, types) in operations.items()
        }

    @property
    def addresses(self) -> dict[str, int]:
        return {
            f"emulated.{name}": ctypes.cast(callback, ctypes.c_void_p).value or 0
            for name, callback in self._callbacks.items()
        }

    def finish(self) -> None:
        assert not self.faults, self.faults
        assert not self.is_configured, "tilerelease is missing"

    def _counted(self, name: str, run: Callable[..., None]) -> Callable[..., None]:
        def counted(*args: Any) -> None:
            self.counts[name] = self.counts.get(name, 0) + 1
            if not self.is_configured and name != "ldtilecfg":
                self.faults.append(f"{name} before ldtilecfg")
            run(*args)

        return counted

    def _configure(self, address: int) -> None:
        raw = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
        row_bytes, rows = raw[16:32].view(np.uint16), raw[48:56]
        if raw[0] != 1 or raw[1:16].any() or raw[32:48].any() or raw[56:].any():
            self.faults.append("ldtilecfg: palette or reserved bytes")
        if list(row_bytes) != [64] * 8 or list(rows) != [16] * 8:
            self.faults.append(f"ldtilecfg: {rows} rows of {row_bytes} bytes")
        self.tiles[:] = 0
        self.is_configured = True

    def _release(self) -> None:
        self.is_configured = False

    def _zero(self, tile: int) -> None:
        self.tiles[tile] = 0

    def _load(self, tile: int, address: int, stride: int) -> None:
        for row in range(16):
            data = ctypes.string_at(address + row * stride, 64)
            self.tiles[tile, row] = np.frombuffer(data, np.uint8)

    def _store(self, tile: int, address: int, stride: int) -> None:
        for row in range(16):
            ctypes.memmove(address + row * stride, self.tiles[tile, row].tobytes(), 64)

    def _product(self, a: str, b: str, out: str) -> Callable[[int, int, int], None]:
        """TDP…: C[m][n] += sum of A[m].group k times B[k].group n, for every k."""

        def run(c: int, x: int, y: int) -> None:
            import ml_dtypes

            del ml_dtypes  # imported for NumPy to know bfloat16
            sums = self.tiles[c].view(out)
            left = self.tiles[x].view(a).reshape(16, 16, -1).astype(out)
            right = self.tiles[y].view(b).reshape(16, 16, -1).astype(out)
            sums += np.einsum("mkg,kng->mn", left, right)

        return run


_PRODUCTS = {
    "tdpbssd": ("int8", "int8", "int32"),
    "tdpbsud": ("int8", "uint8", "int32"),
    "tdpbusd": ("uint8", "int8", "int32"),
    "tdpbuud": ("uint8", "uint8", "int32"),
    "tdpbf16ps": ("bfloat16", "bfloat16", "float32"),
}
