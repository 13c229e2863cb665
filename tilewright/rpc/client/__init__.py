"""This side: devices, models on them, and the tracker as clients see it."""
