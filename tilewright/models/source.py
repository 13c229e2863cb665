"""What an ONNX model was read from, so that it can be read again later."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

from tilewright.support.errors import UserError

#: Models in memory of more bytes are not kept only because they might be read again.
_KEPT: Final = 32 << 20


@dataclass(frozen=True)
class ModelSource:
    """A path, bytes or a `ModelProto`; files must stay as they were."""

    _model: Any
    _stamp: tuple[int, ...] | None

    @staticmethod
    def of(model: Any) -> ModelSource:
        """The source of a model as `tw.compile` gets it."""
        if not isinstance(model, str | os.PathLike):
            return ModelSource(model, None)
        # The process may be in another folder by then.
        path = os.path.abspath(os.fsdecode(model))  # pyright: ignore[reportUnknownArgumentType]
        return ModelSource(path, _stamp(path))

    @property
    def is_cheap(self) -> bool:
        """Whether keeping it takes little memory."""
        if self._stamp is not None or not hasattr(self._model, "ByteSize"):
            return self._stamp is not None or len(self._model) <= _KEPT
        return self._model.ByteSize() <= _KEPT

    def again(self) -> Any:
        """The model, once more."""
        if self._stamp is not None and _stamp(self._model) != self._stamp:
            raise UserError(
                f"cannot read {self._model} again",
                reason="the file was changed or removed after the model was compiled from it",
                remedy="compile the model anew",
            )
        return self._model


def _stamp(path: str) -> tuple[int, ...]:
    """What changes with a file; nothing where there is none, which readers will say."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
