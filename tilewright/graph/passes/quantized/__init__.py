"""Passes over models in bytes: products, what is read of them, and weights of few bits."""
