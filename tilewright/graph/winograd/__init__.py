"""Winograd's algorithm for convolutions: its transforms, and a model of where it pays."""
