"""Attention on GPUs in one launch: what is one and by which tiles (plan), what is the same wherever
scores are (cut), scores in shared memory (shared) or in registers (registers)."""
