"""Attention by tensor instructions, in one launch; scores never go to global memory.

for head, tile of rows in blocks:
    copy the rows
    for tile of keys:                                          copies run ahead (`stages`)
        acc = rows · keys                                      by warps (`ir.warps`)
        S[row, key] = acc with scale, mask, …
    greatest[row], total[row] = …                              some threads for each row
    P[row, key] = exp(S - greatest) / total                    narrow
    for tile of keys: acc += P · values                        copies run ahead
    result = acc …

Where there are enough tiles of rows for each to need few warps, these keep scores in registers: of
all keys if these are few (`registers`), else of a chunk at a time (`online`). Otherwise all warps
of a block share the keys of its rows, and scores are in shared memory (`shared`).
"""

from __future__ import annotations

from typing import Final

from tilewright.schedule.rules.gpu.attention.cut import Cut
from tilewright.schedule.rules.gpu.attention.online import Online
from tilewright.schedule.rules.gpu.attention.plan import (
    AttentionPlan,
    Way,
    find_attention,
    plan_attention,
)
from tilewright.schedule.rules.gpu.attention.registers import InRegisters
from tilewright.schedule.rules.gpu.attention.shared import InShared
from tilewright.schedule.rules.rule import Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

_WAYS: Final[dict[Way, type[Cut]]] = {
    "shared": InShared,
    "registers": InRegisters,
    "online": Online,
}


def _schedule(s: Schedule, _block: str, plan: AttentionPlan | None, _target: Target) -> None:
    assert plan is not None
    s.restore(plan.found.prepared)
    _WAYS[plan.way](s, plan).apply()


ONE_LAUNCH_ATTENTION = Rule("attention", find_attention, plan_attention, _schedule)
