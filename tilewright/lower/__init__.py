"""Lowering: from scheduled blocks to flat loops that a code generator can print."""

from tilewright.lower.host import lower_host
from tilewright.lower.pipeline import lower

__all__ = ["lower", "lower_host"]
