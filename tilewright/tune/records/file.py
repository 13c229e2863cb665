"""Files of records: a line each; lines are only ever added (`support.lines`)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable

from tilewright.support.files import AnyPath, replacing, text_path
from tilewright.support.lines import LineFile, lines_of
from tilewright.tune.records.record import Record


class RecordFile(LineFile):
    """A file to which records are added; it is made where there is none."""

    def add(self, record: Record) -> None:
        """Add a record; it is in the file when this returns, whatever becomes of the process."""
        self.add_line(record.line())


def write_records(records: Iterable[Record], path: AnyPath) -> None:
    """A file of these records, in the place of what was there."""
    with replacing(path) as file:
        file.writelines(record.line() for record in records)


def read_records(paths: AnyPath | Iterable[AnyPath]) -> list[Record]:
    """The records of one file or of many, in order; other lines are reported once."""
    found, damaged = list[Record](), list[str]()
    for path in _paths(paths):
        for number, line in enumerate(lines_of(text_path(path)), 1):
            try:
                found.append(Record.of_line(line))
            except (ValueError, TypeError, RecursionError) as error:
                damaged.append(f"line {number} of {text_path(path)}: {error}")
    if damaged:
        others = f" (and {len(damaged) - 1} others)" if len(damaged) > 1 else ""
        warnings.warn(f"no record is in {damaged[0]}{others}", stacklevel=2)
    return found


def _paths(paths: AnyPath | Iterable[AnyPath]) -> list[AnyPath]:
    return [paths] if isinstance(paths, str | bytes | os.PathLike) else list(paths)
