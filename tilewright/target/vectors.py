"""Vector widths and registers, from processor features."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.target.features import Features

#: RISC-V extensions that guarantee a minimum register width.
_RISCV_WIDTHS = {f"zvl{bits}b": bits for bits in (1024, 512, 256, 128, 64, 32)}

#: Features that prefer narrower vectors than the widest.
_X86_WISHES = {"prefer-128-bit": 128, "prefer-256-bit": 256}


def vector_bits(arch: str, features: Features) -> int:
    """The preferred vector width in bits; 0 without vectors."""
    return _BITS[arch](features)


def vector_registers(arch: str, features: Features) -> int:
    """The number of vector registers."""
    if arch == "x86_64":
        return 32 if "avx512vl" in features else 16
    if arch == "arm":
        if "neon" in features:
            return 16
        # Of a microcontroller's thirteen general registers, some hold addresses.
        return 8 if "mve" in features else 10
    # WebAssembly has unlimited locals; engines mostly run on machines with 16 registers.
    return 16 if arch in ("wasm32", "riscv32") else 32


def vector_widths(arch: str, features: Features) -> tuple[int, ...]:
    """All vector widths that these features support, widest first."""
    if arch != "x86_64":
        return (vector_bits(arch, features),)
    widest = _x86_bits(features.difference(_X86_WISHES))
    return tuple(bits for bits in (512, 256, 128) if bits <= widest)


def of_width(arch: str, features: Features, bits: int) -> Features:
    """The features with another preferred vector width."""
    if bits == vector_bits(arch, features):
        return features
    plain = features.difference(_X86_WISHES)
    wishes = (wish for wish, preferred in _X86_WISHES.items() if preferred == bits)
    return plain if bits == _x86_bits(plain) else plain.union(wishes)


def _x86_bits(features: Features) -> int:
    if "avx" not in features or "prefer-128-bit" in features:
        return 128
    # No described processor has 512-bit registers without the VL extension.
    return 512 if "avx512vl" in features and "prefer-256-bit" not in features else 256


def _arm_bits(features: Features) -> int:
    # SVE widths are only known at run time; fixed-width code uses NEON.
    return 128 if "neon" in features or "mve" in features else 0


def _riscv_bits(features: Features) -> int:
    if "zve32x" not in features:
        return 0
    return next((bits for name, bits in _RISCV_WIDTHS.items() if name in features), 0)


def _wasm_bits(features: Features) -> int:
    return 128 if "simd128" in features else 0


_BITS: dict[str, Callable[[Features], int]] = {
    "x86_64": _x86_bits,
    "aarch64": _arm_bits,
    "riscv64": _riscv_bits,
    "arm": _arm_bits,
    "riscv32": _riscv_bits,
    "wasm32": _wasm_bits,
    # The widest load or store of a thread.
    "nvptx64": lambda _: 128,
}
