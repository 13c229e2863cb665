"""Sums of products: tiles in registers, packing, instructions, attention, recurrent steps."""
