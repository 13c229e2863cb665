"""What a machine can do."""

from tilewright.target.cpu import Caches
from tilewright.target.here import why_not_here
from tilewright.target.kinds import KINDS, Kind, verify_for
from tilewright.target.target import Target
from tilewright.target.timing import ConvTiming, Timing

__all__ = [
    "KINDS",
    "Caches",
    "ConvTiming",
    "Kind",
    "Target",
    "Timing",
    "verify_for",
    "why_not_here",
]
