"""Attention on GPUs in one launch: how it is recognised and tiled (plan), the steps common to all
variants (cut), and scores in shared memory (shared) or in registers (registers, online)."""
