"""Default schedules: what a function gets that nobody has scheduled."""

# pyright: reportUnusedImport=false
from tilewright.schedule.rules.default import schedule_by_rules
from tilewright.schedule.rules.tiles import packed_columns
