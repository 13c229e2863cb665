"""Control flow in the builder."""

from __future__ import annotations


class ControlFlow:
    """Mixed into `Builder`."""
