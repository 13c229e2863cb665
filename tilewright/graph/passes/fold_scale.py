"""Folds constant factors and addends into weights and biases, batch norm's among them.

    a = conv(x, w)
    b = batch_norm(a, scale, bias, mean, var)    -->     y = conv(x, w * f, t)
    y = mul(b, f32(2.0))

Factors go backwards into the product that makes what they multiply, or forwards into the one that
reads it; those of two operands that are both computed are multiplied in after the product. Only
results of 32 bits and more are rounded differently without anyone seeing it: others are left alone.
"""

from __future__ import annotations

from tilewright.graph.ir import Module
from tilewright.graph.rules import RuleRewriter, scale_rules


def fold_scale(module: Module) -> Module:
    """The module with factors and addends in the constants of products."""
    return module.map(lambda f: RuleRewriter(f, scale_rules).graph(f))
