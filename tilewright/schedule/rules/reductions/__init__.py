"""Reductions along rows and down columns."""
