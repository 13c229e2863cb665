"""Moves transposes of images to channels last past what uses them: see `graph.rules.sinks`."""

from __future__ import annotations

from tilewright.graph.ir import Module
from tilewright.graph.rules import RuleRewriter, sink_rules


def sink_transposes(module: Module) -> Module:
    """The module with images kept as their operators take them."""
    return module.map(lambda f: RuleRewriter(f, sink_rules).graph(f))
