"""Emits expressions as C: one row of a table per kind of node.

Values used more than once in a statement get a name ahead of it, and so do subexpressions that
would nest too deeply. Select, `and` and `or` may evaluate both sides: loads that must not happen
carry a mask (`lower.bounds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.codegen.c.types import c_constant, c_type, unsigned
from tilewright.ir import (
    Binary,
    Call,
    Cast,
    Const,
    DType,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    is_pure,
)
from tilewright.support.errors import InternalError, UserError

if TYPE_CHECKING:
    from tilewright.codegen.c.frame import CFrame

#: Nesting depth of parentheses at which a subexpression gets a name: compilers have limits.
_DEEP: Final = 12


def emit(frame: CFrame, root: Expr, *, as_index: bool = False) -> str:
    """C for `root`; definitions it needs are written to `frame` first.

    `as_index` asserts that sums and products of int64 do not overflow.
    """
    uses, wrapping = _uses(root), _wrapping(root, as_index)
    texts: dict[Expr, str] = {}
    depths: dict[Expr, int] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        operands = _needed(node)
        missing = [o for o in operands if o not in texts]
        if missing:
            pending.extend(reversed(missing))
            continue
        pending.pop()
        if node in texts:
            continue
        plain = node.dtype.name == "int64" and node not in wrapping
        text = _EMITTERS[type(node)](frame, node, [texts[o] for o in operands], plain)
        depth = 1 + max((depths[o] for o in operands), default=0)
        is_named = _is_worth_a_name(node) and (uses[node] > 1 or depth > _DEEP)
        if node is not root and (is_named or not is_pure(node)):
            text, depth = frame.named(node.dtype, text), 0
        texts[node], depths[node] = text, depth
    return texts[root]


def _uses(root: Expr) -> Counter[Expr]:
    """How many times each node is an operand."""
    uses = Counter[Expr]()
    pending = [root]
    while pending:
        for operand in _needed(pending.pop()):
            uses[operand] += 1
            if uses[operand] == 1:
                pending.append(operand)
    return uses


def _wrapping(root: Expr, as_index: bool) -> frozenset[Expr]:
    """The nodes used for their value, not only as an index, whose arithmetic must wrap around."""
    found: set[Expr] = set()
    pending = [] if as_index else [root]
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        masks = () if not isinstance(node, Load) or node.mask is None else (node.mask,)
        pending.extend(masks if isinstance(node, Load) else _needed(node))
    return frozenset(found)


def _needed(node: Expr) -> tuple[Expr, ...]:
    if isinstance(node, Call) and node.name == "address_of":
        return node.args[0].operands
    return node.operands


def _is_worth_a_name(node: Expr) -> bool:
    return not isinstance(node, Var | Const)


# ---- arithmetic ---------------------------------------------------------------------------------


def wrapped(dtype: DType, a: str, op: str, b: str) -> str:
    """Integer arithmetic that wraps around, computed in the unsigned type."""
    u = unsigned(dtype)
    return f"({c_type(dtype)})(({u}){a} {op} ({u}){b})"


def _emit_unary(_frame: CFrame, node: Unary, args: Sequence[str], as_index: bool) -> str:
    (a,) = args
    if node.op == "not":
        return f"(!{a})"
    if node.op == "bitnot":
        return f"({c_type(node.dtype)})(~{a})"
    if node.dtype.is_float or as_index:
        return f"(-{a})"
    return wrapped(node.dtype, "0", "-", a)


_ARITHMETIC: Final = {"add": "+", "sub": "-", "mul": "*"}
_COMPARISONS: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGIC: Final = {"and": "&&", "or": "||"}
_BITS: Final = {"bitand": "&", "bitor": "|", "bitxor": "^"}


def _emit_binary(frame: CFrame, node: Binary, args: Sequence[str], as_index: bool) -> str:
    (a, b), op, dtype = args, node.op, node.dtype
    if op in _ARITHMETIC:
        if dtype.is_float:
            return f"({a} {_ARITHMETIC[op]} {b})"
        if as_index and dtype.name == "int64":
            first = f"(int64_t){a}" if isinstance(node.a, Const) else a
            return f"({first} {_ARITHMETIC[op]} {b})"
        return wrapped(dtype, a, _ARITHMETIC[op], b)
    if op in _COMPARISONS:
        return f"({a} {_COMPARISONS[op]} {b})"
    if op in _LOGIC:
        return f"({a} {_LOGIC[op]} {b})"
    if op in _BITS:
        return f"({c_type(dtype)})({a} {_BITS[op]} {b})"
    if op == "div":
        return f"({a} / {b})"
    if dtype.is_bool:
        return f"({a} {'&&' if op == 'min' else '||'} {b})"
    return frame.inline((op, dtype.short), a, b)


def _emit_cast(frame: CFrame, node: Cast, args: Sequence[str], as_index: bool) -> str:
    del as_index
    (a,), source, wanted = args, node.a.dtype, node.dtype
    if source is wanted:
        return a
    if wanted.is_bool:
        return f"({a} != 0)"
    if source.is_float and wanted.is_integer:
        return frame.inline(("convert", source.short, wanted.short), a)
    return f"({c_type(wanted)}){a}"


def _emit_select(_frame: CFrame, node: Select, args: Sequence[str], as_index: bool) -> str:
    del as_index
    condition, a, b = args
    # C would convert both sides to their common type, and give that.
    return f"({c_type(node.dtype)})({condition} ? {a} : {b})"


def _emit_load(frame: CFrame, node: Load, args: Sequence[str], as_index: bool) -> str:
    del as_index
    element = f"{frame.buffer(node.buffer)}[{args[0]}]"
    if node.dtype.is_bool:
        element = f"({element} != 0)"
    if node.mask is None:
        return element
    return f"({c_type(node.dtype)})({args[1]} ? {element} : 0)"


# ---- calls --------------------------------------------------------------------------------------

#: libm functions with the same name here; those for float32 end in f.
_LIBM: Final = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf pow atan2 sqrt floor ceil trunc fma copysign".split()
)
#: libm functions with another name; `round` rounds to even in the default rounding mode.
_OTHER_LIBM: Final = {"round": "nearbyint", "abs": "fabs", "coarse_exp": "exp"}
#: Functions that are defined here (`c.inline_functions`).
_INLINE: Final = frozenset(
    "abs popcount clz ctz mulhi mulhi_doubled shift_nearest sigmoid coarse_sigmoid rsqrt".split()
)
_TESTS: Final = {"isinf": "isinf", "isfinite": "isfinite", "signbit": "signbit"}


def _emit_call(frame: CFrame, node: Call, args: Sequence[str], as_index: bool) -> str:
    del as_index
    from tilewright.codegen.c.host import EXPRESSIONS

    name, dtype = node.name, node.args[0].dtype if node.args else node.dtype
    if name in EXPRESSIONS:
        return EXPRESSIONS[name](frame, node, args)
    if name in _LIBM or (name in _OTHER_LIBM and dtype.is_float):
        suffix = "f" if dtype.bits == 32 else ""
        return f"{_OTHER_LIBM.get(name, name)}{suffix}({', '.join(args)})"
    if name == "isnan":
        return f"({args[0]} != {args[0]})"
    if name in _TESTS:
        return f"({_TESTS[name]}({args[0]}) != 0)"
    if name.startswith("reinterpret_"):
        return _reinterpreted(frame, node, args[0])
    if name == "abs" and not dtype.is_signed:
        return args[0]
    if name in _INLINE:
        return frame.inline((name, dtype.short), *args)
    if name.startswith("extern."):
        return _external(frame, node, args)
    if name.startswith("llvm."):
        raise UserError(
            f"cannot compile a call of {name}",
            reason="that is an instruction of LLVM's, and the target is C",
            remedy="build for target 'llvm'",
        )
    raise InternalError(f"no C for the intrinsic {name}")


def _reinterpreted(frame: CFrame, node: Call, a: str) -> str:
    source = node.args[0].dtype
    if source is node.dtype:
        return a
    if source.is_integer and node.dtype.is_integer:
        return f"({c_type(node.dtype)}){a}"
    return frame.inline(("bits", source.short, node.dtype.short), a)


def _external(frame: CFrame, node: Call, args: Sequence[str]) -> str:
    """A C function, declared with the types of the operands of this call."""
    from tilewright.codegen.c.frame import declared_type

    name = node.name.removeprefix("extern.")
    returns = "void" if not is_pure(node) and node.dtype.is_bool else c_type(node.dtype)
    frame.unit.declare(f"{returns} {name}({', '.join(declared_type(a) for a in node.args)});")
    given = [
        f"(void *)(uintptr_t){text}" if declared_type(a) == "void *" else text
        for a, text in zip(node.args, args, strict=True)
    ]
    return f"{name}({', '.join(given)})"


_EMITTERS: dict[type[Expr], Callable[[CFrame, Any, Sequence[str], bool], str]] = {
    Var: lambda frame, node, _args, _as_index: frame.variable(node),
    Const: lambda _frame, node, _args, _as_index: c_constant(node),
    Unary: _emit_unary,
    Binary: _emit_binary,
    Cast: _emit_cast,
    Select: _emit_select,
    Load: _emit_load,
    Call: _emit_call,
}
