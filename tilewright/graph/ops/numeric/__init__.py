"""Fourier transforms, windows of signals, determinants, random numbers."""
