"""Tuners: which samples of a space are measured next."""
