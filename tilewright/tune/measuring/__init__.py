"""Measuring: candidates are built by workers, and run by a process that may crash."""
