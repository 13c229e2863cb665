"""Passes over quantized models: products of bytes, their readers, and weights of few bits."""
