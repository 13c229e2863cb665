"""Errors that say which node of a model they come from."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.support.errors import InternalError, TilewrightError, UserError


@contextmanager
def locating(origin: str, remedy: str = "") -> Generator[None]:
    """Code that converts a node: its errors name the node.

    Converters trust that operands and attributes are what the framework says they are.
    """
    try:
        yield
    except TilewrightError as error:
        raise _located(error, origin) from error.__cause__
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError) as e:
        raise UserError(
            f"cannot convert {origin}",
            reason=f"its operands or attributes do not fit ({type(e).__name__}: {e})",
            remedy=remedy,
        ) from e


def _located(error: TilewrightError, origin: str) -> TilewrightError:
    """The error with the node it comes from; the innermost one is named."""
    if isinstance(error, InternalError | UnspecialisedError) or "\n    at " in error.listing:
        return error
    kept = [t for t in error.listing.split("\n") if t and not t.startswith("    from ")]
    listing = "\n".join(["", *kept, f"    at {origin}"])
    return UserError(error.what, reason=error.reason, remedy=error.remedy, listing=listing)
