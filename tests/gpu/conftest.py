"""What tests of the CUDA driver share."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu.driver import Driver, forget_driver
from tilewright.support import libcuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Driver]]:
    """A device behind such a driver."""
    driver = Driver()
    monkeypatch.setattr(libcuda, "_load", lambda: (driver, ""))
    forget_driver()
    spec = importlib.util.find_spec("tilewright.runtime.gpu.cuda")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.DEVICE, driver
    forget_driver()
