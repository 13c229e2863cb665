"""Schedules: reshaping loop functions without changing what they compute."""

from tilewright.schedule.error import RefusedError, ScheduleError
from tilewright.schedule.handles import BlockRef, Loop
from tilewright.schedule.rules import Choices, instances, packed_columns
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.schedulers import (
    RULES,
    RULES_BY_ADDRESS,
    UNAPPLIED,
    Given,
    Recorded,
    Rules,
    Scheduler,
    Tuned,
    function_of,
    schedule_by_rules,
    scheduler_of,
    tuned_key,
)
from tilewright.schedule.tensor_intrin import (
    TensorIntrin,
    find_intrin,
    register_intrin,
    require_features,
)
from tilewright.schedule.trace import Trace

__all__ = [
    "RULES",
    "RULES_BY_ADDRESS",
    "UNAPPLIED",
    "BlockRef",
    "Choices",
    "Given",
    "Loop",
    "Recorded",
    "RefusedError",
    "Rules",
    "Schedule",
    "ScheduleError",
    "Scheduler",
    "TensorIntrin",
    "Trace",
    "Tuned",
    "find_intrin",
    "function_of",
    "instances",
    "packed_columns",
    "register_intrin",
    "require_features",
    "schedule_by_rules",
    "scheduler_of",
    "tuned_key",
]
