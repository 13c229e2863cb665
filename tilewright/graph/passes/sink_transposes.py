"""Moves transposes of images to channels last behind their readers: see `graph.rules.sinks`."""

from __future__ import annotations

from tilewright.graph.ir import Module
from tilewright.graph.rules import RuleRewriter, sink_rules


def sink_transposes(module: Module) -> Module:
    """The module with images left in the layout that their operators take."""
    return module.map(lambda f: RuleRewriter(f, sink_rules).graph(f))
