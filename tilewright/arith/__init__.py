"""Integer reasoning: simplification, bounds, proofs, affine maps."""

from tilewright.arith.bounds import bounds
from tilewright.arith.divisibility import divisor
from tilewright.arith.interval import Interval
from tilewright.arith.linear import Linear, linear
from tilewright.arith.prove import prove, prove_equal
from tilewright.arith.ranges import Ranges
from tilewright.arith.simplify import simplify
from tilewright.arith.symbolic_bounds import symbolic_bounds
