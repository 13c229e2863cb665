"""Damaged artifacts: their bytes, the files in them, and manifests whose checksums are right."""

from __future__ import annotations

import random
import warnings
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import tilewright as tw
from tests.frontends.hostile.damage import bent_tree, damaged
from tests.manifest_edits import manifest_of, outcome, rewrite
from tests.runtime.test_manifest_edits import MODELS
from tilewright.runtime.artifact.container import ContainerWriter

#: Models in which numbers and graphs are data that no code vouches for: others are other models.
FREE: Final = ("hosted", "cases")


@dataclass(frozen=True)
class Damaged:
    """A damaged artifact, and what the sound one gives."""

    model: str
    path: Path
    wanted: list[Any]

    def outcome(self) -> tuple[str, str]:
        """What loading and running it ends in."""
        found = outcome(self.path, MODELS[self.model][1], self.wanted)
        if found == "refused":
            return "refused", ""
        if found == "right" or (found == "other results" and self.model in FREE):
            return "ran", ""
        return "fault", f"{self.model}: {found}"


def artifact(folder: Path, number: int) -> Damaged:
    rng = random.Random(number)
    model = rng.choice(sorted(MODELS))
    source, wanted = _saved(folder, model)
    path = folder / "damaged.twm"
    rng.choice(_DAMAGES)(source, path, rng)
    return Damaged(model, path, wanted)


@cache
def _saved(folder: Path, name: str) -> tuple[Path, list[Any]]:
    """A sound artifact, and what it gives."""
    make, inputs = MODELS[name]
    path = folder / f"{name}.twm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tw.save(make(), path)
    return path, tw.load(path, threads=1).run(inputs)


def _damage_bytes(source: Path, path: Path, rng: random.Random) -> None:
    path.write_bytes(damaged(source.read_bytes(), rng))


def _damage_file(source: Path, path: Path, rng: random.Random) -> None:
    """A file in it is damaged or missing; all checksums are right."""
    with zipfile.ZipFile(source) as old, ContainerWriter(path) as new:
        files = {name: old.read(name) for name in old.namelist()}
        name = rng.choice([n for n in files if files[n]])
        if rng.random() < 0.2:
            del files[name]
        else:
            files[name] = damaged(files[name], rng)
        for n, data in files.items():
            new.add(n, [data], len(data))


def _damage_manifest(source: Path, path: Path, rng: random.Random) -> None:
    while True:
        try:
            return rewrite(source, path, bent_tree(manifest_of(source), rng))
        except (TypeError, ValueError, LookupError):
            continue


_DAMAGES: Final = (_damage_bytes, _damage_file, _damage_manifest, _damage_manifest)
