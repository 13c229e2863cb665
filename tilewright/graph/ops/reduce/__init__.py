"""Reductions along axes, running sums, softmax."""
