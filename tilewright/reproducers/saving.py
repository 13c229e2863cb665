"""The border around the compiler: what leaves it is a `UserError`, or a fault with its file."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tilewright.support.errors import InternalError, UserError
from tilewright.support.faults import as_tilewright_error

if TYPE_CHECKING:
    from tilewright.graph import PassContext
    from tilewright.target import Target


def saving_reproducers(
    target: Target | str, context: PassContext, *, checked: bool = False
) -> AbstractContextManager[None]:
    """A block that compiles; it can be entered again, also inside itself."""
    return _Saving(target, context, checked)


class _Saving(AbstractContextManager[None]):
    def __init__(self, target: Target | str, context: PassContext, checked: bool) -> None:
        self._target, self._context, self._checked = target, context, checked

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        del at
        if not isinstance(error, Exception) or isinstance(error, UserError):
            return
        reported = as_tilewright_error(error, "compiling the model failed")
        if isinstance(reported, InternalError) and reported.reproducer is None:
            if reported is not error:
                reported.__cause__ = error
            reported.reproducer = self._saved(reported)
            # They may hold all of the model.
            reported.subjects.clear()
        if reported is not error:
            raise reported from error

    def _saved(self, error: InternalError) -> str:
        """The path of the file; empty where none could be written, for whatever reason."""
        try:
            from tilewright.reproducers.file import Conditions
            from tilewright.reproducers.made import reproducer_of
            from tilewright.support.config import config
            from tilewright.target import Target

            conditions = Conditions.of(Target.of(self._target), self._context, self._checked)
            made = reproducer_of(error, conditions)
            if made.nodes:
                error.places = {"node": ", ".join(made.nodes), **error.places}
            return str(made.write(config().faults_dir or Path(tempfile.gettempdir())))
        except Exception:
            # The fault itself must be reported, whatever becomes of its file.
            return ""
