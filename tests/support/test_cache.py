from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from tilewright.support import cache as cache_module
from tilewright.support.cache import DiskCache, cache_key, default_cache

OVERHEAD = 32


def _stored(cache: DiskCache) -> list[Path]:
    return [p for p in cache.directory.rglob("*") if p.is_file()]


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", limit=1 << 20)


def test_what_is_put_is_got(cache: DiskCache) -> None:
    key = cache_key("kernel", b"\x00\x01")
    assert cache.get(key) is None
    assert cache.put(key, b"code")
    assert cache.get(key) == b"code"
    assert cache.put(key, b"")
    assert cache.get(key) == b""


def test_keys_keep_parts_apart() -> None:
    assert cache_key("ab", "c") != cache_key("a", "bc") != cache_key("abc")
    assert cache_key("a") == cache_key(b"a")
    assert len(cache_key()) == 64


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_entry_is_a_miss(cache: DiskCache, damage: str) -> None:
    key = cache_key("x")
    cache.put(key, b"payload")
    (path,) = _stored(cache)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes({"flip": bytes(data), "cut": path.read_bytes()[:-3], "empty": b""}[damage])
    assert cache.get(key) is None
    assert not path.exists(), "a damaged entry is removed"
    assert cache.put(key, b"payload") and cache.get(key) == b"payload"


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=4 * (100 + OVERHEAD))
    keys = [cache_key(str(i)) for i in range(5)]
    for age, key in enumerate(keys[:4]):
        cache.put(key, b"x" * 100)
        os.utime(cache._path(key), (age, age))
    assert cache.get(keys[0])  # the oldest becomes the most recently used
    cache.put(keys[4], b"x" * 100)
    kept = [cache.get(key) is not None for key in keys]
    assert kept == [True, False, False, True, True]
    assert cache.info().size <= cache.limit


def test_what_exceeds_the_limit_is_not_stored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=64)
    assert not cache.put(cache_key("big"), b"x" * 64)
    assert not _stored(cache)


def test_info_and_clear(cache: DiskCache) -> None:
    for i in range(3):
        cache.put(cache_key(str(i)), b"12345678")
    info = cache.info()
    assert (info.entries, info.size) == (3, 3 * (8 + OVERHEAD))
    assert str(info).startswith("3 entries, 120 of 1M bytes, in ")
    cache.clear()
    assert cache.info().entries == 0
    assert cache.get(cache_key("0")) is None


def test_clear_leaves_foreign_files_alone(cache: DiskCache) -> None:
    foreign = cache.directory / "models" / "bert" / "weights.bin"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"precious")
    cache.clear()
    assert foreign.exists()


def test_a_directory_that_cannot_be_made_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file" / "cache", limit=1 << 20)
    assert not cache.put(cache_key("x"), b"data")
    assert cache.get(cache_key("x")) is None
    assert cache.info().entries == 0
    cache.clear()


def test_a_full_disk_is_no_cache(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.os, "replace", full)
    assert not cache.put(cache_key("x"), b"data")
    assert not _stored(cache), "no temporary file is left behind"


def test_a_cache_that_is_off_stores_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "off", limit=1 << 20, enabled=False)
    assert not cache.put(cache_key("x"), b"data")
    assert not cache.directory.exists()


def test_the_default_cache_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "1M")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    cache = default_cache()
    assert (cache.directory, cache.limit, cache.enabled) == (tmp_path, 1 << 20, False)


def _hammer(directory: Path) -> bool:
    cache = DiskCache(directory, limit=4096)
    keys = [cache_key(str(i)) for i in range(8)]
    for turn in range(100):
        key = keys[turn % 8]
        if cache.get(key) not in (None, key.encode() * 10):
            return False
        cache.put(key, key.encode() * 10)
    return True


def test_processes_share_a_cache(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert all(pool.map(_hammer, [tmp_path] * 3))
