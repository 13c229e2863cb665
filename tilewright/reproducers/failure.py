"""How something failed: by which exception, and where in the package."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.support.errors import InternalError, TilewrightError, UserError

_PACKAGE: Final = Path(__file__).parents[1]
_MOST_FRAMES: Final = 40
_MOST_CHARACTERS: Final = 2000


@dataclass(frozen=True)
class Failure:
    """An exception, the innermost function of this package that it went through, and the rest."""

    exception: str
    place: str
    message: str
    traceback: str

    def is_like(self, other: Failure | None) -> bool:
        """Whether both are the same fault; where a stack overflows is chance."""
        if other is None or self.exception != other.exception:
            return False
        return self.place == other.place or self.exception == "RecursionError"


def failure_of(error: BaseException) -> Failure:
    """How this error came about."""
    cause = error.__cause__
    wraps = isinstance(error, InternalError) and not isinstance(cause, TilewrightError | None)
    root = cause if wraps and cause is not None else error
    frames = traceback.extract_tb(root.__traceback__)
    own = [f for f in traceback.walk_tb(root.__traceback__) if _is_own(f[0].f_code.co_filename)]
    code = own[-1][0].f_code if own else None
    place = f"{_short(code.co_filename)}: {code.co_qualname}" if code else ""
    message = f"{root.what}: {root.reason}" if isinstance(root, InternalError) else str(root)
    lines = [f"{_short(f.filename)}:{f.lineno} in {f.name}\n    {f.line}" for f in frames]
    return Failure(
        type(root).__name__,
        place,
        message[:_MOST_CHARACTERS],
        "\n".join(lines[-_MOST_FRAMES:]),
    )


def failure_in(run: Callable[[], Any]) -> Failure | None:
    """How this fails by a fault of ours; None where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except (UserError, MemoryError):
        return None
    except Exception as error:
        return failure_of(error)
    return None


def _is_own(file: str) -> bool:
    return Path(file).is_relative_to(_PACKAGE) and not file.endswith("support/faults.py")


def _short(file: str) -> str:
    """A path without what it reveals about the machine."""
    path = Path(file)
    if path.is_relative_to(_PACKAGE.parent):
        return path.relative_to(_PACKAGE.parent).as_posix()
    return "/".join(path.parts[-2:])
