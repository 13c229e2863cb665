"""A deterministic order of expressions, so that a sum has one way to be written.

The order depends on structure and on the names of variables, not on addresses; variables of the
same name are ordered by creation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from tilewright.ir import Binary, Call, Cast, Const, Expr, Load, Ramp, Unary, Var

Key = tuple[int, str, int, int]

#: Replaced when it is full: keys are cheap to compute again.
_keys: list[dict[Expr, Key]] = [{}]
_LIMIT = 10_000


def order_key(root: Expr) -> Key:
    """The key by which expressions are sorted."""
    known = _keys[0]
    found = known.get(root)
    if found is not None:
        return found
    if len(known) > _LIMIT:
        # Replaced, not cleared: another thread may be using it.
        _keys[0] = known = {}
    pending = [root]
    while pending:
        node = pending[-1]
        missing = [o for o in node.operands if o not in known]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        known[node] = _key(node, known)
    return known[root]


def _key(node: Expr, known: dict[Expr, Key]) -> Key:
    if isinstance(node, Var):
        return (0, node.name, _text(node.name), node.serial)
    below = [known[o] for o in node.operands]
    label = _text(_LABELS.get(type(node), _type_name)(node))
    # Hashes of tuples of integers are the same in every process.
    digest = hash((label, *(k[2] for k in below)))
    return (1, "", digest, hash(tuple(k[3] for k in below)))


def _text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")


def _type_name(node: Expr) -> str:
    return type(node).__name__


def _const_label(node: Const) -> str:
    value = node.value
    bits = struct.pack("<d", value).hex() if isinstance(value, float) else str(value)
    return f"{node.dtype.name} {bits}"


_LABELS: dict[type[Expr], Callable[[Any], str]] = {
    Const: _const_label,
    Unary: lambda e: e.op,
    Binary: lambda e: e.op,
    Cast: lambda e: f"cast {e.dtype.name}",
    Load: lambda e: f"load {e.buffer.name}",
    Call: lambda e: f"call {e.name}",
    Ramp: lambda e: f"ramp {e.dtype.lanes}",
}
