"""Products of transformed tiles."""
