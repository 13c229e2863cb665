"""Vector maths: mathematical functions as plain arithmetic of the loop IR."""

from tilewright.lower.math.expand import EXPANSIONS, expand, expand_math

__all__ = ["EXPANSIONS", "expand", "expand_math"]
