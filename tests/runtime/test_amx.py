"""Asking for AMX is harmless everywhere."""

from __future__ import annotations

import platform

import pytest

from tilewright.runtime import amx


def test_asking_is_idempotent() -> None:
    assert amx.request_amx() is amx.request_amx()


@pytest.mark.skipif(platform.machine() == "x86_64", reason="x86-64 may have it")
def test_other_machines_have_none() -> None:
    assert not amx.request_amx()


def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx.sys, "platform", "darwin")
    assert not amx.request_amx.__wrapped__()
