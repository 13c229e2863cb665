"""Descriptions of target machines."""

from tilewright.target.cpu import Caches
from tilewright.target.gpus import Gpu
from tilewright.target.here import why_not_here
from tilewright.target.kinds import KINDS, TargetKind, verify_for
from tilewright.target.target import Target
from tilewright.target.timing import ConvTiming, CpuTiming
from tilewright.target.triple import System, system_of

__all__ = [
    "KINDS",
    "Caches",
    "ConvTiming",
    "CpuTiming",
    "Gpu",
    "System",
    "Target",
    "TargetKind",
    "system_of",
    "verify_for",
    "why_not_here",
]
