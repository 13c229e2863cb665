"""The methods of a schedule that move and reshape blocks and buffers."""

from __future__ import annotations

from tilewright.schedule.state import ScheduleState


class BlockMethods(ScheduleState):
    """Block primitives; `schedule/primitives/NAME.py` shows before and after."""
