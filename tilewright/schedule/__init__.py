"""Schedules: reshaping loop functions without changing what they compute."""

from tilewright.schedule.error import ScheduleError
from tilewright.schedule.handles import BlockRef, Loop
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
