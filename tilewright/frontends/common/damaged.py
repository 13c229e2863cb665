"""Files whose parts do not fit together."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tilewright.support.errors import TilewrightError, UserError


@contextmanager
def trusting(what: str, remedy: str = "") -> Generator[None]:
    """Code that trusts a file to be what its format says; where it is not, the file is damaged."""
    try:
        yield
    except TilewrightError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError) as e:
        raise UserError(
            f"{what} is damaged",
            reason=f"its parts do not fit together ({type(e).__name__}: {e})",
            remedy=remedy,
        ) from e
