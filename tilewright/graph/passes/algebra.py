"""Rewrites calls by the algebra of tensors: a table of rules, in `graph.rules`.

    a = transpose(x, axes=[0, 2, 3, 1])
    b = relu(a)                                  -->     y = relu(x)
    y = transpose(b, axes=[0, 3, 1, 2])

The rules preserve every element exactly, except for the order in which sums are added up.
"""

from __future__ import annotations

from tilewright.graph.ir import Module
from tilewright.graph.rules import RuleRewriter, algebra_rules


def algebra(module: Module) -> Module:
    """The module with simpler calls for the same results."""
    return module.map(lambda f: RuleRewriter(f, algebra_rules).graph(f))
