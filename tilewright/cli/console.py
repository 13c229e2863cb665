"""What commands show: text and tables on a terminal or in a pipe, or one JSON document.

Results go to stdout, everything else to stderr. Colours and progress appear on terminals only,
and only where `rich` is installed; without it, the same text comes out plain.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from tilewright.cli.command import Exit


class Console:
    """Where a command's output goes."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._document: dict[str, Any] | None = None
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=_DEGRADE)

    # ---- results --------------------------------------------------------------------------------

    def result(self, **fields: Any) -> None:
        """Facts for machines; they are printed at the end, and only with --json."""
        self._document = {**(self._document or {}), **fields}

    def text(self, text: str = "") -> None:
        """A line for people."""
        if not self.as_json:
            print(text)

    def facts(self, rows: Sequence[tuple[str, Any]]) -> None:
        """Names with what they stand for, one a line."""
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            self.text(f"{self._styled(name.ljust(width), 'bold')}  {value}")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
        """Columns; those whose cells are numbers with units stand to the right."""
        if self.as_json:
            return
        if title:
            print(self._styled(title, "bold"))
        cells = [[str(c) for c in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
        right = [_is_number(column) for column in zip(*cells, strict=True)] or [False] * len(header)
        print(self._styled(_line(header, widths, right), "dim"))
        for row in cells:
            print(_line(row, widths, right))

    def close(self) -> None:
        """Print what was collected, and make sure that all of it has arrived."""
        if self.as_json:
            print(json.dumps(self._document or {}, indent=2, default=str))
        sys.stdout.flush()

    # ---- beside the results ---------------------------------------------------------------------

    def note(self, text: str) -> None:
        """A remark that is no result."""
        self._say(self._styled(text, "dim", sys.stderr))

    def remark(self, text: str) -> None:
        """What is of interest only while it happens."""
        if sys.stderr.isatty() and not self.as_json:
            self.note(text)

    def failed(self, code: Exit, message: str) -> Exit:
        """Say what went wrong."""
        word = "interrupted" if code is Exit.INTERRUPTED else f"error: {message}"
        if self.as_json:
            document = {"error": {"code": int(code), "kind": code.name.lower(), "message": message}}
            with contextlib.suppress(OSError):
                print(json.dumps(document, indent=2), flush=True)
            return code
        first, _, rest = word.partition("\n")
        self._say(self._styled(first, "red", sys.stderr))
        if rest:
            self._say(rest)
        return code

    def _say(self, text: str) -> None:
        """A line on stderr; a closed stderr is no error."""
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            forget(sys.stderr)

    @contextlib.contextmanager
    def working(self, what: str) -> Generator[None]:
        """Show on a terminal that something is going on; say how long it took."""
        start = time.perf_counter()
        with self._spinner(what):
            yield
        self.remark(f"{what}: {time.perf_counter() - start:.1f} s")

    @contextlib.contextmanager
    def counting(self, what: str, total: int) -> Generator[Callable[[], None]]:
        """A progress bar on a terminal; call what this yields after each of `total` steps."""
        if not _has_rich(sys.stderr) or self.as_json:
            yield lambda: None
            return
        from rich.console import Console as RichConsole
        from rich.progress import Progress

        with Progress(console=RichConsole(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)

    def _spinner(self, what: str) -> contextlib.AbstractContextManager[Any]:
        if not _has_rich(sys.stderr) or self.as_json:
            return contextlib.nullcontext()
        from rich.console import Console as RichConsole

        return RichConsole(stderr=True).status(what)

    def _styled(self, text: str, style: str, stream: Any = None) -> str:
        return f"{_STYLES[style]}{text}\x1b[0m" if _has_colours(stream or sys.stdout) else text


def forget(stream: Any) -> None:
    """The reader has gone: let the interpreter not stumble over it when it ends."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


#: What stands for characters that an encoding does not have; for others, a question mark.
_PLAIN = {"×": "x", "–": "-", "…": "...", "µ": "u", "→": "->", "·": "*", "²": "2", "≥": ">="}
_DEGRADE = "tilewright-degrade"


def _degraded(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c, "?") for c in unknown), error.end


codecs.register_error(_DEGRADE, _degraded)

_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m", "red": "\x1b[31m"}


def _has_colours(stream: Any) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _has_rich(stream: Any) -> bool:
    if not _has_colours(stream):
        return False
    from importlib.util import find_spec

    return find_spec("rich") is not None


def _is_number(column: Sequence[str]) -> bool:
    return all(c[:1].isdigit() or c[:1] in "–-+×" for c in column if c)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()
