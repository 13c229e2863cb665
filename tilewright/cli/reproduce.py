"""`tilewright reproduce`: runs the file that came with a fault, and says whether it still fails."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.command import Command, Exit
from tilewright.cli.loading import require_file

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="a file that the message of a fault names"
    )
    parser.add_argument("--traceback", action="store_true", help="show where it fails now")


def _run(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.reproducers import read_reproducer, run_again

    require_file(args.file)
    reproducer = read_reproducer(args.file)
    then, now = reproducer.failure, run_again(reproducer)
    console.result(kind=reproducer.kind, name=reproducer.name, nodes=list(reproducer.nodes))
    console.result(still_fails=now is not None, same=then.is_like(now))
    if reproducer.note:
        console.note(reproducer.note)
    if now is None:
        console.text("it does not fail")
        return Exit.DONE
    how = "as it did" if then.is_like(now) else f"not as it did ({then.exception} in {then.place})"
    console.result(exception=now.exception, place=now.place, message=now.message)
    console.text(f"it fails, {how}: {now.exception} in {now.place}: {now.message}")
    if args.traceback:
        console.text(now.traceback)
    return Exit.DIFFERENT


COMMAND = Command(
    "reproduce",
    "run the file that came with a fault, and say whether it still fails",
    _configure,
    _run,
    ("reproduce tilewright-fault-0123456789ab.txt",),
)
