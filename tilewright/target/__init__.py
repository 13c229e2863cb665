"""What a machine can do."""

from tilewright.target.cpu import Caches
from tilewright.target.here import why_not_here
from tilewright.target.target import Target

__all__ = ["Caches", "Target", "why_not_here"]
