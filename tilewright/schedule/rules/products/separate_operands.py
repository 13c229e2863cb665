"""Products of a buffer with itself: the columns get a copy, which can be packed.

C[i, j] += A[i, k] * A[k, j]
-->
A_again[k, j] = A[k, j]
C[i, j] += A[i, k] * A_again[k, j]
"""

from __future__ import annotations

from tilewright.schedule.facts.products import is_step
from tilewright.schedule.rules.analysis import Contraction, as_contraction
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _product_with_itself(s: Schedule, name: str, _target: Target) -> Contraction | None:
    block = s.block_of(name)
    c = as_contraction(block)
    if c is None or is_step(block) or not s.loops(name):
        return None
    is_twice = c.a.buffer is c.b.buffer and c.a.indices != c.b.indices
    return c if is_twice else None


def _copy_columns(s: Schedule, name: str, c: Contraction, _target: Target) -> None:
    s.copy_operand(name, c.factor(1))


SEPARATE_OPERANDS = Rule("separate_operands", _product_with_itself, as_found, _copy_columns)
