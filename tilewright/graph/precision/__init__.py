"""Rewriting of calls to narrower types, with one table of rules for each precision."""

from tilewright.graph.precision.bf16 import bf16_rules
from tilewright.graph.precision.float8 import float8_rules
from tilewright.graph.precision.int8 import int8_rules
from tilewright.graph.precision.rewriter import Narrower

__all__ = ["Narrower", "bf16_rules", "float8_rules", "int8_rules"]
