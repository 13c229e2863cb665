"""The parser, and what happens around a command: errors, interruption, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright import __version__
from tilewright.cli import (
    bench,
    cache,
    compare,
    compile,
    completion,
    demo,
    doctor,
    export,
    inspect,
    keygen,
    profile,
    quantize,
    records,
    report,
    reproduce,
    rpc,
    run,
    tune,
)
from tilewright.cli.command import Command, Exit
from tilewright.support.errors import InternalError, UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console

#: All commands, in the order in which help lists them.
COMMANDS: tuple[Command, ...] = (
    compile.COMMAND,
    run.COMMAND,
    bench.COMMAND,
    profile.COMMAND,
    tune.COMMAND,
    records.COMMAND,
    inspect.COMMAND,
    report.COMMAND,
    compare.COMMAND,
    quantize.COMMAND,
    export.COMMAND,
    keygen.COMMAND,
    doctor.COMMAND,
    demo.COMMAND,
    rpc.COMMAND,
    reproduce.COMMAND,
    cache.COMMAND,
    completion.COMMAND,
)

_EPILOG = """\
exit codes:
  0  done                         3  a model, artifact, target or file cannot be used
  1  different, or still failing  4  a fault of Tilewright's own
  2  wrong command line         130  interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _require_streams()
    parser = build_parser()
    words = sys.argv[1:] if argv is None else argv
    if not words:
        parser.print_help(sys.stderr)
        return Exit.USAGE
    try:
        return int(_run(parser.parse_args(words)))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else Exit.USAGE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _require_streams() -> None:
    """Open what the caller has closed, so that no file of ours gets its number."""
    # Typed as if they were always there.
    streams: dict[str, object] = {"stdout": sys.stdout, "stderr": sys.stderr}
    for name, stream in streams.items():
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; shell completion is generated from it too."""
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="Compile deep-learning models into native code, run them, look inside.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        _add(commands, command)
    return parser


def _add(commands: argparse._SubParsersAction[argparse.ArgumentParser], command: Command) -> None:  # pyright: ignore[reportPrivateUsage]
    lines = [f"  tilewright {example}" for example in command.examples]
    parser = commands.add_parser(
        command.name,
        help=command.summary,
        description=command.summary[0].upper() + command.summary[1:] + ".",
        epilog="\n".join(["examples:", *lines]) if lines else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    parser.set_defaults(_command=command)


def _run(args: argparse.Namespace) -> Exit:
    from tilewright.cli.console import Console, forget

    console = Console(as_json=args.json)
    command: Command = args._command
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _shown_by(console)
            code = command.run(args, console)
        console.close()
        return code
    except KeyboardInterrupt:
        return console.failed(Exit.INTERRUPTED, "interrupted")
    except BrokenPipeError:
        forget(sys.stdout)
        return Exit.DONE
    except UserError as error:
        return console.failed(Exit.REFUSED, str(error))
    except OSError as error:
        return console.failed(Exit.REFUSED, _file_message(error))
    except MemoryError:
        return console.failed(Exit.REFUSED, "there is not enough memory for this")
    except InternalError as error:
        return _internal(console, str(error))
    except Exception as error:
        return _internal(console, f"{type(error).__name__}: {error}")


def _shown_by(console: Console) -> Callable[..., None]:
    def show(message: object, *_: object, **__: object) -> None:
        console.note(str(message))

    return show


def _file_message(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _internal(console: Console, message: str) -> Exit:
    import traceback

    if os.environ.get("TILEWRIGHT_TRACEBACK"):
        traceback.print_exc()
    hint = "set TILEWRIGHT_TRACEBACK=1 to see where, and please report it"
    return console.failed(Exit.INTERNAL, f"internal error: {message}\n  {hint}")
