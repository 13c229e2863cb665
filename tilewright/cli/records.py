"""`tilewright records`: what records of tuning hold, and many files as one."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.command import Command, Exit
from tilewright.cli.compile import require_writable
from tilewright.cli.loading import require_file

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--best", action="store_true", help="only what compilers apply")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.jsonl", help="write them here")
    parser.add_argument("--report", type=Path, metavar="PAGE.html", help="draw them as one page")


def _run(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright import tune
    from tilewright.support.timing import format_seconds

    for path in args.files:
        require_file(path)
    for path in filter(None, (args.output, args.report)):
        require_writable(path)
    records = tune.read_records(args.files)
    winners = [r for found in tune.best_records(records).values() for r in found.values()]
    failures = Counter(r.failure for r in records if r.failure)
    console.result(
        measurements=len(records),
        failures=dict(failures),
        tasks=len({r.task for r in records}),
        winners=[
            {"name": r.name, "target": r.target, "ratio": r.ratio, "values": dict(r.values)}
            for r in winners
        ],
    )
    console.table(
        ("kernel", "default", "tuned", "gain", "by"),
        [
            (
                r.name,
                format_seconds(r.reference),
                format_seconds(r.seconds),
                f"×{1 / (r.ratio or 1.0):.2f}",
                r.words,
            )
            for r in sorted(winners, key=lambda r: r.ratio or 1.0)
        ],
    )
    failed = ", ".join(f"{n} {why}" for why, n in failures.items())
    console.text(
        f"{len(records)} measurements{f' ({failed})' if failed else ''}, {len(winners)} winners"
    )
    if args.output:
        tune.write_records(winners if args.best else records, args.output)
    if args.report:
        tune.write_report(args.files, args.report)
    return Exit.DONE


COMMAND = Command(
    "records",
    "show, merge and sift records of tuning",
    _configure,
    _run,
    (
        "records tuning.jsonl",
        "records monday.jsonl tuesday.jsonl --best -o best.jsonl",
        "records tuning.jsonl --report tuning.html",
    ),
)
