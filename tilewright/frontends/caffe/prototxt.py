"""Protocol buffers as text: `name: "conv1" convolution_param { num_output: 64 }`.

A message is kept as it is written: a list of values for each name, each a message, a string, or a
word or number. Whoever reads a field decides its type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tilewright.support.errors import UserError

#: A token after what separates it from the one before; its group names its kind.
_TOKEN: Final = re.compile(
    r"""(?:\s+ | \#[^\n]*)*+
      (?: (?P<word>[A-Za-z_][\w.]*)
      | (?P<number>-?(0[xX][0-9a-fA-F]+ | (\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fF]? | inf | nan))
      | (?P<text>"(\\.|[^"\\\n])*" | '(\\.|[^'\\\n])*')
      | (?P<mark>[{}<>\[\]:;,])
      | (?P<end>\Z))""",
    re.VERBOSE,
)
_SEPARATED: Final = re.compile(r"(?:\s+|#[^\n]*)*+")
_CLOSING: Final = {"{": "}", "<": ">"}
_MOST_LEVELS: Final = 32
_ESCAPE: Final = re.compile(r"\\(.)")
#: Names that may come first in a network.
_FIRST: Final = frozenset(
    "name input input_dim input_shape layer layers state force_backward debug_info".split()
)
_START: Final = re.compile(r"(?:\s|#[^\n]*\n)*([A-Za-z_]\w*)\s*[:{<]")


class Message:
    """The fields of one message."""

    __slots__ = ("fields", "line")

    def __init__(self, line: int = 1) -> None:
        self.fields: dict[str, list[Any]] = {}
        self.line = line

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def messages(self, name: str) -> list[Message]:
        """All values of a field that holds messages."""
        found = self.fields.get(name, [])
        if not all(isinstance(f, Message) for f in found):
            raise UserError(f"{name} is no message", reason=f"in the message of line {self.line}")
        return found

    def message(self, name: str) -> Message:
        """A field that holds a message; an empty one where it is left out."""
        found = self.messages(name)
        return found[-1] if found else Message(self.line)

    def texts(self, name: str) -> list[str]:
        """All values of a field that holds strings or words."""
        found = self.fields.get(name, [])
        if any(isinstance(f, Message) for f in found):
            raise UserError(f"{name} is a message", reason=f"in the message of line {self.line}")
        return [str(f) for f in found]

    def text(self, name: str, default: str = "") -> str:
        return (self.texts(name) or [default])[-1]

    def integers(self, name: str) -> list[int]:
        return [_whole(name, t) for t in self.texts(name)]

    def integer(self, name: str, default: int) -> int:
        return (self.integers(name) or [default])[-1]

    def reals(self, name: str) -> list[float]:
        return [_real(name, t) for t in self.texts(name)]

    def real(self, name: str, default: float) -> float:
        return (self.reals(name) or [default])[-1]

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.text(name, "true" if default else "false")
        if found not in ("true", "false", "1", "0", "t", "f", "True", "False"):
            raise UserError(f"{name} is {found[:40]!r}", remedy="write true or false")
        return found in ("true", "1", "t", "True")


def _whole(name: str, text: str) -> int:
    try:
        found = int(text, 0) if text[:2].lower() in ("0x", "-0") else int(text)
    except ValueError:
        raise UserError(f"{name} is {text[:40]!r}", reason="it takes a whole number") from None
    if not -(1 << 63) <= found < 1 << 63:
        raise UserError(f"{name} is {text[:40]}", reason="it does not fit 64 bits")
    return found


def _real(name: str, text: str) -> float:
    try:
        return float(text.rstrip("fF") if text[-3:].lower() != "inf" else text)
    except ValueError:
        raise UserError(f"{name} is {text[:40]!r}", reason="it takes a number") from None


def is_network(head: bytes) -> bool:
    """Whether a text begins as a network does."""
    found = _START.match(head.decode("utf-8-sig", "replace"))
    return found is not None and found[1] in _FIRST


# ---- parsing ------------------------------------------------------------------------------------


class _Token:
    __slots__ = ("kind", "line", "text")

    def __init__(self, kind: str, text: str, line: int) -> None:
        self.kind, self.text, self.line = kind, text, line


def parse_prototxt(source: str, name: str) -> Message:
    """The message that a text describes."""
    tokens = _tokens(source, name)
    root = Message()
    # Open messages, each with its closing token.
    stack: list[tuple[Message, str]] = [(root, "")]
    at = 0
    while tokens[at].kind != "end":
        token = tokens[at]
        message, closing = stack[-1]
        if token.text == closing and token.kind == "mark":
            stack.pop()
            at += 1
        elif token.kind == "mark" and token.text in ",;":
            at += 1
        elif token.kind == "word":
            at = _field(tokens, at, message, stack, name)
        else:
            raise _unexpected(token, name)
    if len(stack) > 1:
        raise UserError(
            f"{name} ends too early", reason=f"the message of line {stack[-1][0].line} stays open"
        )
    return root


def _field(
    tokens: Sequence[_Token], at: int, message: Message, stack: list[tuple[Message, str]], name: str
) -> int:
    """Read a field from its name on; where the next token is. A message is left open."""
    values = message.fields.setdefault(tokens[at].text, [])
    at += 1
    has_colon = tokens[at].text == ":" and tokens[at].kind == "mark"
    at += has_colon
    token = tokens[at]
    if token.kind == "mark" and token.text in _CLOSING:
        if len(stack) >= _MOST_LEVELS:
            raise UserError(f"{name} has messages nested more than {_MOST_LEVELS} deep")
        inner = Message(token.line)
        values.append(inner)
        stack.append((inner, _CLOSING[token.text]))
        return at + 1
    if not has_colon:
        raise _unexpected(token, name)
    if token.kind == "mark" and token.text == "[":
        return _list(tokens, at + 1, values, name)
    return _value(tokens, at, values, name)


def _list(tokens: Sequence[_Token], at: int, values: list[Any], name: str) -> int:
    while tokens[at].text != "]" or tokens[at].kind != "mark":
        at = _value(tokens, at, values, name)
        if tokens[at].kind == "mark" and tokens[at].text == ",":
            at += 1
    return at + 1


def _value(tokens: Sequence[_Token], at: int, values: list[Any], name: str) -> int:
    token = tokens[at]
    if token.kind in ("word", "number"):
        values.append(token.text)
        return at + 1
    if token.kind != "text":
        raise _unexpected(token, name)
    parts: list[str] = []
    while tokens[at].kind == "text":
        parts.append(_ESCAPE.sub(r"\1", tokens[at].text[1:-1]))
        at += 1
    values.append("".join(parts))
    return at


def _tokens(source: str, name: str) -> list[_Token]:
    found: list[_Token] = []
    at, line = 0, 1
    for match in _TOKEN.finditer(source):
        if match.start() != at:
            break
        kind = match.lastgroup or ""
        line += source.count("\n", at, match.start(kind))
        found.append(_Token(kind, match[kind], line))
        if kind == "end":
            return found
        at = match.end()
    raise _unreadable(source, at, name)


def _unreadable(source: str, at: int, name: str) -> UserError:
    """What stands where no token begins."""
    separated = _SEPARATED.match(source, at)
    start = at if separated is None else separated.end()
    line = 1 + source.count("\n", 0, start)
    reason = f"line {line} has {source[start : start + 20]!r}"
    return UserError(f"{name} cannot be read", reason=reason)


def _unexpected(token: _Token, name: str) -> UserError:
    what = "it ends" if token.kind == "end" else f"{token.text[:40]!r} stands"
    return UserError(f"{name} cannot be read", reason=f"{what} on line {token.line}")
