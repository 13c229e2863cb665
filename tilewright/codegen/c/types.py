"""How the IR's types, constants and names map to C's."""

from __future__ import annotations

import math
import re
from typing import Final

from tilewright.ir import Const, DType

_FLOATS: Final = {"float32": "float", "float64": "double"}
#: Names that no variable may have: C's keywords, and names that the code refers to.
_RESERVED: Final = frozenset(
    "auto bool break case char const continue default do double else enum extern false float for "
    "goto if inline int long main register restrict return short signed sizeof static struct "
    "switch true typedef union unsigned void volatile while "
    "env words status leave own given begin end error calls_env "
    "malloc realloc free memcpy memmove memset errno NULL NAN INFINITY signbit isnan isinf "
    "isfinite y0 y1 yn j0 j1 jn gamma asm typeof linux unix".split()
)
_LIBM: Final = re.compile(
    r"(a?(sin|cos|tan)h?|atan2|exp2?|expm1|log(2|10|1p)?|erfc?|pow|sqrt|floor|ceil|trunc|round|fma"
    r"|copysign|nearbyint|rint|fabs|abs|fmin|fmax|fmod)[fl]?"
)


def c_type(dtype: DType) -> str:
    """The type of a value."""
    if dtype.is_bool:
        return "bool"
    return _FLOATS.get(dtype.name) or f"{dtype.name}_t"


def memory_type(dtype: DType) -> str:
    """The type of an element in memory."""
    return "uint8_t" if dtype.is_bool else c_type(dtype)


def unsigned(dtype: DType) -> str:
    """An unsigned type that C does not promote, for arithmetic that wraps around."""
    return "uint64_t" if dtype.bits == 64 else "uint32_t"


def c_constant(node: Const) -> str:
    """A constant with exactly its type's value."""
    value, dtype = node.value, node.dtype
    if dtype.is_bool:
        return "true" if value else "false"
    return _float(float(value), dtype) if dtype.is_float else _integer(int(value), dtype)


def _float(value: float, dtype: DType) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(value) + ("f" if dtype.bits == 32 else "")
    return f"({text})" if text.startswith("-") else text


def _integer(value: int, dtype: DType) -> str:
    if not dtype.is_signed:
        return f"{value}u" if dtype.bits < 64 else f"UINT64_C({value})"
    if value == int(dtype.min_value) and dtype.bits >= 32:
        return f"INT{dtype.bits}_MIN"
    text = str(value) if -(1 << 31) < value < 1 << 31 else f"INT64_C({value})"
    return f"({text})" if value < 0 else text


def identifier(name: str) -> str:
    """A valid C identifier, as similar to `name` as possible."""
    return re.sub(r"\W", "_", name, flags=re.ASCII) or "_"


class Names:
    """Unique names for the variables of one function."""

    def __init__(self) -> None:
        self._taken = set[str](_RESERVED)

    def new(self, hint: str) -> str:
        base = identifier(hint)
        # Names that begin with an underscore are reserved, those of libm are functions.
        if base[0].isdigit() or base.startswith(("_", "tw_")) or _LIBM.fullmatch(base):
            base = f"v{base}"
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def function_name(name: str) -> str:
    """The C name of a kernel, which no libc function has."""
    return f"tw_{identifier(name)}"
