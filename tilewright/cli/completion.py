"""`tilewright completion`: words that a shell completes, generated from the parser."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tilewright.cli.command import Command, Exit

if TYPE_CHECKING:
    from tilewright.cli.console import Console


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(_SCRIPTS))


def _run(args: argparse.Namespace, console: Console) -> Exit:
    from tilewright.cli.app import build_parser

    script = _SCRIPTS[args.shell](build_parser())
    console.result(shell=args.shell, script=script)
    console.text(script)
    return Exit.DONE


def _words(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The options of every command, and the words it chooses from."""
    found: list[Any] = [a for a in parser._actions if a.dest == "command"]  # pyright: ignore[reportPrivateUsage]
    choices: dict[str, argparse.ArgumentParser] = found[0].choices
    return {name: _words_of(sub) for name, sub in choices.items()}


def _words_of(parser: argparse.ArgumentParser) -> list[str]:
    found: list[str] = []
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        found.extend(o for o in action.option_strings if o.startswith("--"))
        if not action.option_strings and action.choices:
            found.extend(map(str, action.choices))
    return found


def _bash(parser: argparse.ArgumentParser) -> str:
    words = _words(parser)
    cases = "\n".join(f'    {name}) words="{" ".join(own)}" ;;' for name, own in words.items())
    return f"""\
_tilewright() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _tilewright tilewright"""


def _zsh(parser: argparse.ArgumentParser) -> str:
    words = _words(parser)
    cases = "\n".join(f"    {name}) compadd -- {' '.join(own)} ;;" for name, own in words.items())
    return f"""\
#compdef tilewright
_tilewright() {{
  if (( CURRENT == 2 )); then
    compadd -- {" ".join(words)}
    return
  fi
  case "$words[2]" in
{cases}
  esac
  _files
}}
compdef _tilewright tilewright"""


def _fish(parser: argparse.ArgumentParser) -> str:
    lines = ["complete -c tilewright -n __fish_use_subcommand -f"]
    for name, own in _words(parser).items():
        lines.append(f"complete -c tilewright -n __fish_use_subcommand -a {name}")
        seen = f"'__fish_seen_subcommand_from {name}'"
        options = [f"-l {w[2:]}" if w.startswith("--") else f"-a {w}" for w in own]
        lines.extend(f"complete -c tilewright -n {seen} {option}" for option in options)
    return "\n".join(lines)


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}

COMMAND = Command(
    "completion",
    "print a script with which a shell completes words",
    _configure,
    _run,
    (
        "completion bash > ~/.local/share/bash-completion/completions/tilewright",
        "completion fish > ~/.config/fish/completions/tilewright.fish",
    ),
)
