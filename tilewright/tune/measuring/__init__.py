"""Measuring: workers build candidates, and a process that may crash runs them."""
