"""Tuners: select the samples of a space to measure next."""
