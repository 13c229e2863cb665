"""What every package may use: errors, configuration, the on-disk cache, timing.

Import from the modules themselves; there is no façade, so that each import stays small.
"""
