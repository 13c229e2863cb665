"""Compiled models: what users hold, save, load and export."""
