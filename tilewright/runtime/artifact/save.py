"""Saves models to an artifact: builds of one model for different targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright import __version__
from tilewright.runtime.artifact.sign import Key, Signer
from tilewright.runtime.artifact.write import write_artifact
from tilewright.support.errors import UserError
from tilewright.support.faults import at_the_border
from tilewright.support.files import AnyPath, text_path

if TYPE_CHECKING:
    from tilewright.runtime.runnable import RunnableModel


def save_models(models: Sequence[RunnableModel], path: AnyPath, key: Key | None = None) -> None:
    """Write one artifact with a model compiled for different targets, signed by `key`."""
    with at_the_border(f"saving to {path!r} failed"):
        _save(models, path, key)


def _save(models: Sequence[RunnableModel], path: AnyPath, key: Key | None) -> None:
    signer = None if key is None else Signer(key)
    if not models:
        raise UserError(f"cannot write {text_path(path)}", reason="there is no model to save")
    builds = [m.as_build() for m in models]
    texts = [b.target.text for b in builds]
    if twice := sorted({t for t in texts if texts.count(t) > 1}):
        raise UserError("cannot save two models for one target", reason=f"both are for {twice[0]}")
    interfaces = [_interface(m) for m in models]
    for text, interface in zip(texts, interfaces, strict=True):
        if interface != interfaces[0]:
            raise UserError(
                "cannot save different models as one",
                reason=f"for {text} it takes and gives {interface}, and first {interfaces[0]}",
                remedy="save each to a file of its own",
            )
    write_artifact(path, builds, {"tool": __version__, **interfaces[0]}, signer)


def _interface(model: RunnableModel) -> dict[str, Any]:
    return {
        "inputs": [str(s) for s in model.inputs],
        "outputs": [str(s) for s in model.outputs],
    }
