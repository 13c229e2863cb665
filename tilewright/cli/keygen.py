"""`tilewright keygen`: a pair of keys to sign artifacts by."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.command import Command, Exit
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="write NAME.pem and NAME.pub.pem")


def _run(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.runtime import make_key_pair

    private, public = Path(f"{args.name}.pem"), Path(f"{args.name}.pub.pem")
    for path in (private, public):
        if path.exists():
            raise UserError(f"cannot write {path}", reason="it is there, and keys are not replaced")
    secret, shown = make_key_pair()
    # Readable by its owner alone, from the first byte on.
    with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    with open(public, "xb") as file:
        file.write(shown)
    console.result(private=str(private), public=str(public))
    console.text(f"{private}: the private key, for compile --sign-key; keep it to yourself")
    console.text(f"{public}: the public key, for run --trusted")
    return Exit.DONE


COMMAND = Command(
    "keygen",
    "make a pair of keys to sign artifacts by",
    _configure,
    _run,
    ("keygen release",),
)
