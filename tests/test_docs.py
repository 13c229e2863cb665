"""Every Python block of README.md and of the documentation runs; every link leads somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.markdown import run_blocks

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import torch" in page.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    # Blocks may write files; none of them belongs in the checkout.
    monkeypatch.chdir(tmp_path)
    run_blocks(page)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    links = _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    near = [link for link in links if "://" not in link]
    missing = [link for link in near if not (page.parent / link).exists()]
    assert not missing


def test_pages_show_python() -> None:
    lessons = [p for p in PAGES if p.parent.name == "lessons"]
    fronts = [p for p in PAGES if p.parent.name == "frontends"]
    assert len(lessons) >= 16 and len(fronts) >= 7
    for page in (ROOT / "README.md", *lessons, *fronts):
        assert "```python\n" in page.read_text(encoding="utf-8"), f"{page.name} shows no Python"


def test_the_menu_lists_every_page() -> None:
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "docs" / "build.py")
    assert spec and spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    listed = {name for names in build.MENU.values() for name in names}
    docs = ROOT / "docs"
    assert {str(p.relative_to(docs)) for p in docs.rglob("*.md")} <= listed
