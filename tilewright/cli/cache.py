"""`tilewright cache`: what was compiled before, kept on disk."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tilewright.cli.command import Command, Exit

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=["info", "clear"], default="info")


def _run(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.support.cache import default_cache

    cache = default_cache()
    before = cache.info()
    if args.action == "clear":
        cache.clear()
        console.text(f"{before.entries - cache.info().entries} entries removed")
    info = cache.info()
    console.result(
        directory=info.directory, entries=info.entries, bytes=info.size, limit=info.limit
    )
    console.result(enabled=cache.enabled, removed=before.entries - info.entries)
    console.facts(
        [
            ("directory", info.directory),
            ("entries", info.entries),
            ("size", f"{info.size / 1e6:.1f} MB of at most {info.limit / 1e6:.0f} MB"),
            ("in use", "yes" if cache.enabled else "no: TILEWRIGHT_CACHE turns it off"),
        ]
    )
    return Exit.DONE


COMMAND = Command(
    "cache",
    "show or clear the cache of compiled code",
    _configure,
    _run,
    ("cache info", "cache clear"),
)
