"""Integer reasoning: simplification, bounds, proofs, affine maps."""

from tilewright.arith.affine import AffineMap
from tilewright.arith.bounds import bounds, linear_bounds
from tilewright.arith.divisibility import divisor
from tilewright.arith.interval import Interval
from tilewright.arith.itermap import IterMap, detect_bindings
from tilewright.arith.linear import Linear
from tilewright.arith.linearize import linear
from tilewright.arith.prove import prove, prove_equal
from tilewright.arith.ranges import Ranges, conjuncts, knowing_nothing
from tilewright.arith.rough import rough
from tilewright.arith.simplify import simplify
from tilewright.arith.simplify_stmt import simplify_function, simplify_stmt
from tilewright.arith.symbolic_bounds import symbolic_bounds

__all__ = [
    "AffineMap",
    "Interval",
    "IterMap",
    "Linear",
    "Ranges",
    "bounds",
    "conjuncts",
    "detect_bindings",
    "divisor",
    "knowing_nothing",
    "linear",
    "linear_bounds",
    "prove",
    "prove_equal",
    "rough",
    "simplify",
    "simplify_function",
    "simplify_stmt",
    "symbolic_bounds",
]
