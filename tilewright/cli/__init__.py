"""The command line: one file per command, listed in `app.py`."""

from tilewright.cli.app import build_parser, main

__all__ = ["build_parser", "main"]
