"""What ARCHITECTURE.md names is there: rooms, files, modules, and what walks say to register in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tilewright"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROOMS = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}

_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./*…-]+(/|\.py|\.md)|[\w/*…-]+/[\w/*…-]+")
_DOTTED = re.compile(r"[a-z_]\w*(\.\w+)+")


def _section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def _rows(title: str) -> Iterator[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in _section(title).splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def _files(name: str) -> list[Path]:
    """The files and folders of a name, in which NAME and … stand for any."""
    pattern = name.strip("/").replace("NAME", "*").replace("…", "**")
    if "/" not in pattern:
        # Inside a row, files are named as their room knows them.
        return [*PACKAGE.rglob(pattern), *ROOT.glob(pattern)]
    return [p for base in (PACKAGE, ROOT) for p in base.glob(pattern)]


def _modules(dotted: str) -> list[Path]:
    """The file of a module, or of one that a name is in; those of back ends may leave it out."""
    parts = dotted.removeprefix("tilewright.").split(".")
    for end in (len(parts), len(parts) - 1):
        for base in (PACKAGE, PACKAGE / "graph"):
            place = base.joinpath(*parts[:end])
            found = [p for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists()]
            if found and (end == len(parts) or _mentions(found[0], parts[-1])):
                return found
    return []


def _mentions(place: Path, word: str) -> bool:
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return any(re.search(rf"\b{word}\b", f.read_text(encoding="utf-8")) for f in files)


def _places(cell: str) -> list[Path]:
    found: list[Path] = []
    for word in _CODE.findall(cell):
        if _FILE.fullmatch(word):
            found += _files(word)
        elif _DOTTED.fullmatch(word):
            found += _modules(word)
    return found


def test_every_room_has_a_row() -> None:
    described = {cells[0].strip("`/") for cells in _rows("The pipeline and its rooms")}
    assert described == ROOMS


def test_files_that_are_named_exist() -> None:
    named = {w for w in _CODE.findall(TEXT) if _FILE.fullmatch(w)}
    assert not [w for w in sorted(named) if not _files(w)]


def test_modules_that_are_named_exist() -> None:
    heads = ROOMS | {p.name for p in (PACKAGE / "graph").iterdir()}
    named = {w for w in _CODE.findall(TEXT) if _DOTTED.fullmatch(w)}
    ours = {w for w in named if w.split(".")[0] in heads and not w.endswith((".py", ".md"))}
    assert not [w for w in sorted(ours) if not _modules(w)]


@pytest.mark.parametrize("cells", list(_rows("Where to add what")), ids=lambda cells: cells[0])
def test_walks_lead_somewhere(cells: list[str]) -> None:
    """What is to be written or registered stands in the files that the row names."""
    _, where, registration = cells
    places = _places(where) + _places(registration)
    assert places, "it names no file"
    for word in _CODE.findall(f"{where} {registration}"):
        if re.fullmatch(r"@?[A-Za-z_]\w*(\.\w+|\(.*\))?", word) and not _places(f"`{word}`"):
            name = re.match(r"@?(\w+)", word)
            assert name and (name[1] == "NAME" or any(_mentions(p, name[1]) for p in places)), word
