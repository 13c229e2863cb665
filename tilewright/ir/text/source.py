"""Source text, and messages that point into it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from tilewright.ir.stmt import Span
from tilewright.support.errors import UserError


@dataclass(slots=True)
class Source:
    """Source text; `first_line` is the number of its first line in `file`."""

    text: str
    file: str = "<text>"
    first_line: int = 1
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = self.text.splitlines()

    def parse(self) -> ast.Module:
        """The syntax tree; text that is no Python is refused with its position."""
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
            length = (error.end_offset or 0) - (error.offset or 0)
            raise self._error_at(
                line, column, max(length, 1), f"syntax error: {error.msg}"
            ) from None
        except (RecursionError, MemoryError):
            raise self.too_deep() from None
        except ValueError as error:
            raise UserError(f"{self.file}: cannot be read", reason=str(error)) from None

    def span(self, node: ast.AST) -> Span:
        line, column = _position(node)
        return Span(self.file, self._number(line), column)

    def error(self, node: ast.AST, what: str, reason: str = "", remedy: str = "") -> UserError:
        """An error at `node`, its source underlined."""
        line, byte_column = _position(node)
        text = self._line(line)
        column = _characters(text, byte_column)
        ends_here = getattr(node, "end_lineno", None) == line
        end = _characters(text, getattr(node, "end_col_offset", 0)) if ends_here else len(text)
        return self._error_at(line, column, max(end - column, 1), what, reason, remedy)

    def too_deep(self) -> UserError:
        return UserError(
            f"{self.file}: too deeply nested to be read", remedy="break up the expression with let"
        )

    def _error_at(
        self, line: int, column: int, length: int, what: str, reason: str = "", remedy: str = ""
    ) -> UserError:
        text = self._line(line)
        shown = text.strip()
        start = max(column - (len(text) - len(text.lstrip())), 0)
        underline = " " * start + "^" * max(min(length, len(shown) - start), 1)
        place = f"{self.file}:{self._number(line)}:{column + 1}"
        return UserError(
            f"{place}: {what}",
            reason=reason,
            remedy=remedy,
            listing=f"    {shown}\n    {underline}",
        )

    def _number(self, line: int) -> int:
        return line + self.first_line - 1

    def _line(self, line: int) -> str:
        return self.lines[line - 1] if 0 < line <= len(self.lines) else ""


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


def _characters(text: str, count: int) -> int:
    """How many characters the first `count` bytes make; syntax trees count bytes."""
    return len(text.encode()[:count].decode(errors="ignore"))
