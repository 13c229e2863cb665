"""Bytes kept on disk between runs, such as object code.

The cache may forget anything at any time and never fails its caller: a damaged entry is a miss, and
on a full disk or in a directory that cannot be written it quietly stores nothing. Entries appear
by `os.replace`, so that readers in other processes see all of an entry or none of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.support.config import config, format_size

#: Part of every path: entries in other layouts are never opened, only evicted.
_LAYOUT = "v1"
#: Paths of entries in any layout; narrow, so that `clear` in a shared folder harms nothing else.
_PLACES = "v[0-9]*/[0-9a-f][0-9a-f]/*"
_DIGEST_BYTES = hashlib.sha256().digest_size
#: Eviction goes this far below the limit, so that the next `put` need not evict again.
_KEEP = 0.8
#: A temporary file this old was left by a process that died.
_STALE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds."""

    directory: Path
    entries: int
    size: int
    limit: int

    def __str__(self) -> str:
        used = f"{self.size} of {format_size(self.limit)} bytes"
        return f"{self.entries} entries, {used}, in {self.directory}"


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size: int
    used_at: float


def cache_key(*parts: str | bytes) -> str:
    """The SHA-256 of `parts`, each with its length: ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class DiskCache:
    """A size-bounded store of bytes by key; the least recently used entries go first."""

    def __init__(self, directory: Path, limit: int, *, enabled: bool = True) -> None:
        self.directory, self.limit, self.enabled = directory, limit, enabled
        self._size: int | None = None

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None when there are none that can be trusted."""
        if not self.enabled:
            return None
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if not _is_intact(data):
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return data[_DIGEST_BYTES:]

    def put(self, key: str, data: bytes) -> bool:
        """Store `data`; False when the cache could not, which callers may ignore."""
        size = len(data) + _DIGEST_BYTES
        if not self.enabled or size > self.limit:
            return False
        try:
            _write(self._path(key), hashlib.sha256(data).digest() + data)
        except OSError:
            return False
        self._make_room(size)
        return True

    def info(self) -> CacheInfo:
        """How full the cache is."""
        entries = list(self._entries())
        return CacheInfo(self.directory, len(entries), sum(e.size for e in entries), self.limit)

    def clear(self) -> None:
        """Forget everything."""
        for entry in list(self._entries()):
            _remove(entry.path)
        self._remove_stale(older_than=0.0)
        self._size = None

    def _path(self, key: str) -> Path:
        return self.directory / _LAYOUT / key[:2] / f"{key[2:]}.bin"

    def _entries(self) -> Iterator[_Entry]:
        for path in self.directory.glob(_PLACES + ".bin"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                yield _Entry(path, stat.st_size, stat.st_mtime)

    def _make_room(self, added: int) -> None:
        # The running total saves walking the folder on each put; other processes make it drift,
        # and the walk after an apparent overflow corrects it.
        known = self._size is not None
        self._size = self._size + added if self._size is not None else self._measured()
        if self._size <= self.limit:
            return
        if known:
            self._size = self._measured()
        if self._size > self.limit:
            self._evict()

    def _measured(self) -> int:
        return sum(entry.size for entry in self._entries())

    def _evict(self) -> None:
        entries = sorted(self._entries(), key=lambda e: e.used_at)
        size, goal = sum(e.size for e in entries), int(self.limit * _KEEP)
        # The newest entry is what the caller has just stored: it stays.
        for entry in entries[:-1]:
            if size <= goal:
                break
            _remove(entry.path)
            size -= entry.size
        self._size = size
        self._remove_stale(older_than=_STALE_SECONDS)

    def _remove_stale(self, older_than: float) -> None:
        now = time.time()
        for path in self.directory.glob(_PLACES + ".tmp"):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime >= older_than:
                    path.unlink()


def default_cache() -> DiskCache:
    """The cache as configured by the environment."""
    settings = config()
    return DiskCache(settings.cache_dir, settings.cache_limit, enabled=settings.cache)


def _is_intact(data: bytes) -> bool:
    return hashlib.sha256(data[_DIGEST_BYTES:]).digest() == data[:_DIGEST_BYTES]


def _write(path: Path, data: bytes) -> None:
    # Cached code is executed: nobody else may write here.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        _remove(Path(temporary))
        raise


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
