"""Computes products in narrower types, where a `precision` asks for it.

precision="bf16"           by bfloat16, summed in float32, on machines that gain    (precision.bf16)
precision="int8-dynamic"   by bytes, where weights are constant                     (precision.int8)
precision="float8"         by floats of eight bits, on GPUs that multiply them    (precision.float8)

On GPUs, `narrow_values` does what "bf16" and "float16" ask for.
"""

from __future__ import annotations

from tilewright.graph.ir import Module
from tilewright.graph.precision import Narrower, bf16_rules, float8_rules, int8_rules
from tilewright.graph.rewriting.context import Pass, PassContext, Step
from tilewright.support.errors import UserError
from tilewright.target import Target


def narrow_products(target: Target, winograd: Step | None = None) -> Pass:
    """The pass for a machine.

    Convolutions stay in float32 where the pass `winograd`, if it runs later, makes them faster.
    """
    tables = {
        "bf16": bf16_rules(target),
        "float8": float8_rules(target),
        "int8-dynamic": int8_rules(target, winograd),
    }

    def narrow_products(module: Module) -> Module:
        """The module with products in the types that are asked for."""
        asked = PassContext.current().precision
        if asked == "float16" and target.kind.device == "cpu":
            raise UserError(
                "precision float16 is for GPUs",
                reason=f"the target is {target.kind.name}",
                remedy='use "bf16", which processors have instructions for, or "float32"',
            )
        if asked == "float8" and not tables[asked]:
            raise UserError(
                "precision float8 is for GPUs since sm_89",
                reason=f"the target is {target}",
                remedy='use "int8-dynamic", whose products are of bytes too, or "float32"',
            )
        rules = tables.get(asked)
        return module.map(lambda f: Narrower(rules).graph(f)) if rules else module

    return narrow_products
