"""Calls written down in narrower types, one table of rules for each precision."""

from tilewright.graph.narrow.bf16 import bf16_rules
from tilewright.graph.narrow.int8 import int8_rules
from tilewright.graph.narrow.rewriter import Narrower

__all__ = ["Narrower", "bf16_rules", "int8_rules"]
