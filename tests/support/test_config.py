from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.support.config import config, format_size, parse_size
from tilewright.support.errors import UserError


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CACHE", "CACHE_DIR", "CACHE_LIMIT", "NUM_THREADS", "COMPILE_JOBS", "VERIFY"):
        monkeypatch.delenv(f"TILEWRIGHT_{name}", raising=False)


def test_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = config()
    assert settings.cache and not settings.verify
    assert settings.cache_dir == tmp_path / "tilewright"
    assert settings.num_threads == settings.compile_jobs == 0


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    assert config().num_threads == 3
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "4")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "512M")
    settings = config()
    assert (settings.num_threads, settings.cache, settings.cache_limit) == (4, False, 512 << 20)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("CACHE", "maybe", "1 or 0"),
        ("NUM_THREADS", "-1", "whole number"),
        ("NUM_THREADS", "two", "whole number"),
        ("CACHE_LIMIT", "lots", "512M or 2G"),
        ("CACHE_LIMIT", "nan", "512M or 2G"),
    ],
)
def test_bad_values_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, remedy: str
) -> None:
    monkeypatch.setenv(f"TILEWRIGHT_{name}", value)
    with pytest.raises(UserError, match=f"(?s)TILEWRIGHT_{name} has no use for.*{remedy}"):
        config()


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("100", 100), ("64K", 65536), ("1.5m", 3 << 19), ("2GiB", 2 << 30), ("1b", 1)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


def test_sizes_print_short() -> None:
    assert [format_size(s) for s in (0, 100, 65536, 3 << 20)] == ["0", "100", "64K", "3M"]
