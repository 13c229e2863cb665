"""Saving and loading compiled models as artifacts.

Loading needs no compiler: neither graphs nor schedules nor code generation are imported, except by
models with parts that Python runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.models.native import LoadedModel, why_not
from tilewright.runtime import (
    Artifact,
    Build,
    CasesContents,
    CompiledContents,
    HostedContents,
    Key,
    Keys,
    LoadedCases,
    RunnableModel,
    StoredBuild,
    save_models,
)
from tilewright.support.errors import UserError
from tilewright.support.faults import at_the_border
from tilewright.support.files import AnyPath


def save(
    models: RunnableModel | Sequence[RunnableModel], path: AnyPath, *, key: Key | None = None
) -> None:
    """Write a model to one file, or the same model compiled for several targets.

    `key` signs the file: the path of a PEM file with a private Ed25519 key, or the key as bytes.
    """
    listed = models if isinstance(models, list | tuple) else [models]
    for model in listed:
        if not isinstance(model, RunnableModel):
            what = f"cannot save {type(model).__name__}"
            raise UserError(what, remedy="pass a compiled model, or a list of them")
    save_models([m for m in listed if isinstance(m, RunnableModel)], path, key)


def load(
    path: AnyPath,
    *,
    target: str | None = None,
    threads: int | None = None,
    verify: bool = True,
    trusted: Keys | None = None,
) -> RunnableModel:
    """Load the model of an artifact, in the build for the best target that this machine can run.

    `target` selects a build by its text or its architecture instead, even one that can only be
    inspected and exported here. Parameters are mapped, so that processes share them; `verify=False`
    skips their checksums, which makes loading large models faster. With `trusted`, one or more
    public Ed25519 keys (paths of PEM files, or bytes), a file without a signature by one of them is
    refused before anything in it is used.
    """
    with at_the_border(f"loading {path!r} failed"):
        artifact = Artifact(path, verify=verify, trusted=trusted)
        return _opened(_chosen(artifact, target).open(), threads)


@dataclass(frozen=True)
class BuildInfo:
    """One target of an artifact; `why_not` says why this machine cannot run it, if so."""

    target: str
    triple: str
    why_not: str
    memory: dict[str, int]


@dataclass(frozen=True)
class ArtifactInfo:
    """The description in an artifact."""

    path: str
    version: int
    tool: str
    inputs: list[str]
    outputs: list[str]
    builds: list[BuildInfo]


def describe(path: AnyPath, *, trusted: Keys | None = None) -> ArtifactInfo:
    """Describe an artifact for any machine, without loading it."""
    with at_the_border(f"reading {path!r} failed"):
        return _described(Artifact(path, trusted=trusted))


def _described(artifact: Artifact) -> ArtifactInfo:
    fields = artifact.fields
    memory = [f.fields("memory") for f in fields.all_fields("builds")]
    builds = [
        BuildInfo(c.target.text, c.target.triple, why_not(c.target), {k: m.integer(k) for k in m})
        for c, m in zip(artifact.builds, memory, strict=True)
    ]
    return ArtifactInfo(
        artifact.path,
        fields.integer("version"),
        fields.text("tool"),
        fields.texts("inputs"),
        fields.texts("outputs"),
        builds,
    )


# ---- choosing -----------------------------------------------------------------------------------


def _chosen(artifact: Artifact, target: str | None) -> StoredBuild:
    if target is not None:
        return _named(artifact, target)
    reasons = {c.target.text: why_not(c.target) for c in artifact.builds}
    able = [c for c in artifact.builds if not reasons[c.target.text]]
    if not able:
        reasons_text = "; ".join(f"{text}: {reason}" for text, reason in reasons.items())
        raise UserError(
            f"cannot load {artifact.path} on this machine",
            reason=reasons_text or "there is nothing in it",
            remedy="compile the model for this machine, or for a lesser one of its kind",
        )
    # The one that requires most features.
    return max(able, key=lambda c: len(c.target.features))


def _named(artifact: Artifact, target: str) -> StoredBuild:
    for candidate in artifact.builds:
        if str(target) in (candidate.target.text, candidate.target.triple, candidate.target.arch):
            return candidate
    held = "; ".join(c.target.text for c in artifact.builds)
    raise UserError(
        f"{artifact.path} holds nothing for {target}",
        reason=f"it holds {held}",
        remedy="name one of these, or an architecture such as x86_64",
    )


# ---- opening ------------------------------------------------------------------------------------


def _opened(build: Build, threads: int | None) -> RunnableModel:
    return _KINDS[type(build.contents)](build, build.contents, threads)


def _compiled(build: Build, contents: CompiledContents, threads: int | None) -> RunnableModel:
    return LoadedModel(build, contents, threads)


def _hosted(build: Build, contents: HostedContents, threads: int | None) -> RunnableModel:
    from tilewright.models.hosted import HostedModel

    native = {n: LoadedModel(build, c, threads) for n, c in contents.native.items()}
    return HostedModel.loaded(build, contents, native)


def _cases(build: Build, contents: CasesContents, threads: int | None) -> RunnableModel:
    del contents

    def opened(part: CompiledContents | HostedContents) -> RunnableModel:
        return _KINDS[type(part)](build, part, threads)

    return LoadedCases(build, opened)


_KINDS: dict[type, Callable[[Build, Any, int | None], RunnableModel]] = {
    CompiledContents: _compiled,
    HostedContents: _hosted,
    CasesContents: _cases,
}
