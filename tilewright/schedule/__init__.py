"""Schedules: reshaping loop functions without changing what they compute."""

from tilewright.schedule.error import ScheduleError
from tilewright.schedule.gather_rows import gather_rows
from tilewright.schedule.handles import BlockRef, Loop
from tilewright.schedule.merge_rows import merge_rows
from tilewright.schedule.rules import packed_columns, schedule_by_rules
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tensor_intrin import (
    TensorIntrin,
    find_intrin,
    register_intrin,
    require_features,
)
from tilewright.schedule.trace import Trace

__all__ = [
    "BlockRef",
    "Loop",
    "Schedule",
    "ScheduleError",
    "TensorIntrin",
    "Trace",
    "find_intrin",
    "gather_rows",
    "merge_rows",
    "packed_columns",
    "register_intrin",
    "require_features",
    "schedule_by_rules",
]
