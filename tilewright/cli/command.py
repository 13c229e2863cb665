"""What a command is, and the codes that all of them end with."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.cli.console import Console


class Exit(IntEnum):
    """How a command ended. These numbers are part of the interface and do not change."""

    #: All went well.
    DONE = 0
    #: The command did its work, and the answer is no: `compare` found a difference, `reproduce`
    #: that a fault is still there.
    DIFFERENT = 1
    #: The command line could not be understood.
    USAGE = 2
    #: What was given cannot be used: a model, an artifact, arrays, a target, a file.
    REFUSED = 3
    #: A fault of Tilewright's own.
    INTERNAL = 4
    #: Ctrl-C.
    INTERRUPTED = 130


#: Adds a command's arguments to its parser. Nothing heavy may be imported for it.
Configure = Callable[[argparse.ArgumentParser], None]
#: Does the work; the return value is the exit code.
Run = Callable[[argparse.Namespace, "Console"], Exit]


@dataclass(frozen=True)
class Command:
    """One word of the command line."""

    name: str
    summary: str
    configure: Configure
    run: Run
    #: Shown under `--help`, one per line, without the word `tilewright`.
    examples: tuple[str, ...] = ()
