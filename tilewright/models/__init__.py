"""Compiled models: run, saved, loaded and exported."""
