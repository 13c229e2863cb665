"""Folds constant factors and addends into weights and biases, batch norm's among them.

    a = conv(x, w)
    b = batch_norm(a, scale, bias, mean, var)    -->     y = conv(x, w * f, t)
    y = mul(b, f32(2.0))

Factors move backwards into the product that computes the scaled value, or forwards into the product
that reads it; factors on two computed operands are applied after the product. Only for results of
32 bits and more: in narrower types the difference in rounding would show.
"""

from __future__ import annotations

from tilewright.graph.ir import Module
from tilewright.graph.rules import RuleRewriter, scale_rules


def fold_scale(module: Module) -> Module:
    """The module with factors and addends folded into the constants of products."""
    return module.map(lambda f: RuleRewriter(f, scale_rules).graph(f))
