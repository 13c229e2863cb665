"""What the triple of a target says, without a table of targets."""

from __future__ import annotations


def is_bare(triple: str) -> bool:
    """Whether code is for a machine without an operating system."""
    return "none" in triple.split("-")[1:3]
