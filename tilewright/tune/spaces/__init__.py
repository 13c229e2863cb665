"""Spaces of schedules: what the default rules decide, templates, and sketches."""
