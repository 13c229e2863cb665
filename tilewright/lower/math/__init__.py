"""Vector maths: mathematical functions as plain arithmetic of the loop IR."""

from tilewright.lower.math.expand import EXPANSIONS, Arithmetic, expand, expand_angles, expand_math

__all__ = ["EXPANSIONS", "Arithmetic", "expand", "expand_angles", "expand_math"]
