"""Files of records, one per line, to which lines are only appended (`support.lines`)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable

from tilewright.support.files import AnyPath, replacing, text_path
from tilewright.support.lines import LineFile, lines_of
from tilewright.tune.records.record import Record


class RecordFile(LineFile):
    """A file to which records are appended; created if necessary."""

    def add(self, record: Record) -> None:
        """Append a record; it is in the file on return, even if the process then crashes."""
        self.add_line(record.line())


def write_records(records: Iterable[Record], path: AnyPath) -> None:
    """Replace a file by one with these records."""
    with replacing(path) as file:
        file.writelines(record.line() for record in records)


def read_records(paths: AnyPath | Iterable[AnyPath]) -> list[Record]:
    """The records of one or more files, in order; damaged lines are reported once."""
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
