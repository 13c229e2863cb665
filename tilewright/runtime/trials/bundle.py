"""A bundle: tasks with many candidates in one file, measured where there is no compiler.

It is a ZIP file. `bundle.json` lists the target and the tasks, and with each candidate the record
that its measurement completes; `pool` is the thread pool's code, `tasks/N` are tasks without it,
and `kernels/DIGEST` serialized kernels, each stored once.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from tilewright.runtime.described import UnreadableError, target_data, target_from
from tilewright.runtime.program import TargetInfo
from tilewright.runtime.trials.task import TrialTask
from tilewright.support.archives import UNREADABLE, read_member
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath, replacing, text_path

_FORMAT: Final = "tilewright bundle 1"
_INDEX: Final = "bundle.json"
_POOL: Final = "pool"
#: Most bytes of a part.
_MOST: Final = 1 << 28


@dataclass(frozen=True)
class BundledTask:
    """A task with its default and its candidates, whose kernels are given by digest."""

    name: str
    task: TrialTask
    default: str
    #: The digest of each candidate's kernel, and its record without the measurement.
    candidates: tuple[tuple[str, Mapping[str, Any]], ...]


class BundleWriter:
    """A bundle that is being written; it appears complete, or not at all."""

    def __init__(self, file: zipfile.ZipFile, target: TargetInfo, pool: bytes) -> None:
        self._file, self._target, self._digests = file, target, set[str]()
        self._tasks: list[dict[str, Any]] = []
        file.writestr(_POOL, pool)

    def add(
        self,
        name: str,
        task: TrialTask,
        default: bytes,
        candidates: Sequence[tuple[bytes, Mapping[str, Any]]],
    ) -> None:
        """Add a task, its default's serialized kernel, and those of candidates with records."""
        file = f"tasks/{len(self._tasks)}"
        self._file.writestr(file, replace(task, pool=b"").packed())
        listed = [[self._kernel(code), dict(record)] for code, record in candidates]
        entry = {"name": name, "task": file, "default": self._kernel(default), "candidates": listed}
        self._tasks.append(entry)

    def _kernel(self, code: bytes) -> str:
        digest = hashlib.sha256(code).hexdigest()
        if digest not in self._digests:
            self._digests.add(digest)
            self._file.writestr(f"kernels/{digest}", code)
        return digest

    def finish(self) -> None:
        index = {"format": _FORMAT, "target": target_data(self._target), "tasks": self._tasks}
        self._file.writestr(_INDEX, json.dumps(index, separators=(",", ":")))


@contextmanager
def writing_bundle(path: AnyPath, target: TargetInfo, pool: bytes) -> Generator[BundleWriter]:
    """A bundle that replaces the file at `path`."""
    with replacing(path) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        writer = BundleWriter(file, target, pool)
        yield writer
        writer.finish()


class Bundle:
    """A bundle that is read; a context manager."""

    def __init__(self, path: AnyPath) -> None:
        self.path = text_path(path)
        try:
            self._file = zipfile.ZipFile(self.path)
        except UNREADABLE as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(f"cannot read {self.path}", reason=reason) from None
        try:
            self._index = self._read_index()
            self.target = target_from(self._index.get("target"))
        except (UnreadableError, ValueError, RecursionError) as error:
            self._file.close()
            raise self._damaged(str(error)) from None

    def tasks(self) -> Iterator[BundledTask]:
        """The tasks, most expensive in a run of the model first."""
        pool = self._part(_POOL)
        for entry in cast("list[Any]", self._index["tasks"]):
            try:
                task = TrialTask.unpacked(self._part(str(entry["task"])))
                listed = tuple((str(d), _record(r)) for d, r in entry["candidates"])
                name, default = str(entry["name"]), str(entry["default"])
            except (ValueError, TypeError, KeyError) as error:
                raise self._damaged(str(error)) from None
            yield BundledTask(name, replace(task, pool=pool, target=self.target), default, listed)

    def kernel(self, digest: str) -> bytes:
        """The serialized kernel with a digest."""
        code = self._part(f"kernels/{digest}")
        if hashlib.sha256(code).hexdigest() != digest:
            raise self._damaged("the code of a kernel was changed")
        return code

    def _read_index(self) -> dict[str, Any]:
        index = json.loads(self._part(_INDEX))
        if not isinstance(index, dict):
            raise UnreadableError("list of tasks")
        found = cast("dict[str, Any]", index)
        if found.get("format") != _FORMAT or not isinstance(found.get("tasks"), list):
            raise UnreadableError("format")
        return found

    def _part(self, name: str) -> bytes:
        try:
            return read_member(self._file, name, _MOST)
        except (KeyError, *UNREADABLE):
            raise self._damaged(f"{name} is not in it") from None

    def _damaged(self, reason: str) -> UserError:
        return UserError(f"{self.path} is no bundle of candidates", reason=reason)

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableError("record")
    found = cast("dict[str, Any]", value)
    for name in ("task", "target", "space"):
        if not isinstance(found.get(name), str):
            raise UnreadableError("record")
    if not isinstance(found.get("sample"), dict):
        raise UnreadableError("record")
    return found
