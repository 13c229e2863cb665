"""Search spaces of schedules: choices of the default rules, templates, and sketches."""
