"""`tilewright rpc`: remote devices, and the tracker that gives them out."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.command import Command, Exit
from tilewright.cli.options import positive

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    server = actions.add_parser("server", help="serve this machine to clients that have the key")
    _add_listening(server, 0)
    server.add_argument(
        "--name", default="", help="what clients ask a tracker for; default the host"
    )
    text = "what clients are told to compile for; default this machine with all it can do"
    server.add_argument("--target", default="", help=text)
    server.add_argument("--tracker", metavar="HOST:PORT", help="have this tracker give it out")
    server.add_argument(
        "--advertise",
        default="",
        metavar="HOST",
        help="where clients reach it, if not as trackers do",
    )
    server.add_argument(
        "--trusted",
        action="append",
        metavar="KEY.pem",
        help="run only artifacts that this public key signed; may be repeated",
    )
    _add_limits(server.add_argument_group("limits"))
    tracker = actions.add_parser("tracker", help="give devices to clients, in turn")
    _add_listening(tracker, 9190)
    keygen = actions.add_parser("keygen", help="make a key")
    keygen.add_argument("file", type=Path, help="the file to write it to, for its owner alone")
    listed = actions.add_parser("list", help="show the devices that a tracker knows")
    listed.add_argument("address", metavar="HOST:PORT", help="where the tracker is")
    _add_key(listed)
    for action in (server, tracker, keygen, listed):
        text = "print one JSON document instead"
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=text)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key-file", required=True, metavar="FILE", help="the key, made by `tilewright rpc keygen`"
    )


def _add_listening(parser: argparse.ArgumentParser, port: int) -> None:
    _add_key(parser)
    text = "the address to listen on; default 127.0.0.1, which this machine alone reaches"
    parser.add_argument("--host", default="127.0.0.1", help=text)
    shown = str(port) if port else "any that is free"
    parser.add_argument("--port", type=int, default=port, help=f"default {shown}")
    parser.add_argument("--folder", type=Path, help="where to write; default the temporary folder")


def _add_limits(group: Any) -> None:
    group.add_argument("--sessions", type=positive, default=1, help="at a time; default 1")
    group.add_argument(
        "--memory", type=_size, default=0, metavar="SIZE", help="of a session, as 2G"
    )
    group.add_argument(
        "--message",
        type=_size,
        default="1G",
        metavar="SIZE",
        help="of arrays in a call; default 1G",
    )
    group.add_argument(
        "--room", type=_size, default="4G", metavar="SIZE", help="for models; default 4G"
    )
    group.add_argument(
        "--call-seconds", type=float, default=300.0, help="that a call may take; default 300"
    )
    group.add_argument(
        "--idle-seconds", type=float, default=600.0, help="between calls of a client; default 600"
    )


def _size(text: str) -> int:
    from tilewright.support.config import parse_size

    try:
        return parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 512M or 2G") from None


def _run(args: argparse.Namespace, console: Console) -> Exit:
    return _ACTIONS[args.action](args, console)


def _server(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.rpc import Limits, Link, Registration, Server, read_key

    limits = Limits(
        args.sessions, args.message, args.room, args.memory, args.call_seconds, args.idle_seconds
    )
    server = Server(
        args.key_file,
        args.host,
        args.port,
        name=args.name,
        limits=limits,
        trusted=args.trusted,
        folder=args.folder,
        target=args.target,
    )
    registration = None
    if args.tracker:
        link = Link(args.tracker, read_key(args.key_file))
        registration = Registration(server, link, args.advertise)
    console.note(f"{server.name} is {server.target}")
    _serve(server, console)
    if registration is not None:
        registration.close()
    return Exit.DONE


def _tracker(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.rpc import TrackerServer

    _serve(TrackerServer(args.key_file, args.host, args.port, folder=args.folder), console)
    return Exit.DONE


def _serve(server: Any, console: Console) -> None:
    """Serve until the process is told to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopping(server))
    console.result(address=server.address)
    console.text(f"listening on {server.address}")
    sys.stdout.flush()
    try:
        server.serve()
    finally:
        server.close()


def _stopping(server: Any) -> Callable[[int, object], None]:
    def stop(number: int, frame: object) -> None:
        del number, frame
        server.stop()

    return stop


def _keygen(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.rpc import write_key

    write_key(args.file)
    console.result(key=str(args.file))
    console.text(f"{args.file}: whoever has this key runs code on your devices; copy it with care")
    return Exit.DONE


def _list(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.rpc import Link, Tracker, read_key

    devices = Tracker(Link(args.address, read_key(args.key_file))).devices()
    console.result(devices=devices)
    columns = ("name", "address", "in_use", "sessions", "waiting", "target")
    rows = [tuple(device[c] for c in columns) for device in devices]
    console.table([c.replace("_", " ") for c in columns], rows)
    return Exit.DONE


_ACTIONS: dict[str, Callable[[argparse.Namespace, Console], Exit]] = {
    "server": _server,
    "tracker": _tracker,
    "keygen": _keygen,
    "list": _list,
}

COMMAND = Command(
    "rpc",
    "run models on other machines: serve this one, or give out several",
    _configure,
    _run,
    (
        "rpc keygen k",
        "rpc server --key-file k --host 0.0.0.0 --port 9191",
        "rpc tracker --key-file k --host 0.0.0.0 --port 9190",
        "rpc server --key-file k --host 0.0.0.0 --tracker host:9190 --name rasp4",
        "rpc list host:9190 --key-file k",
    ),
)
