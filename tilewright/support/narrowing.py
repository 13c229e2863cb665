"""Type guards for values from files and callers, whose types are unknown.

Where `isinstance` leaves the type checker with containers of unknown items, these leave it with
containers of anything.
"""

from __future__ import annotations

import os
from typing import Any, TypeGuard


def is_tuple(value: Any) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_sequence(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, list | tuple)


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object of JSON, whose keys are text."""
    return isinstance(value, dict)


def is_bytes(value: Any) -> TypeGuard[bytes]:
    """Whether it is bytes, or usable as such: an array of bytes, or a view."""
    return isinstance(value, bytes | bytearray | memoryview)


def is_path(value: Any) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(value, str | os.PathLike)
