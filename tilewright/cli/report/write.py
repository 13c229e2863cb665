"""The page as one file: style, scripts and data inside it, nothing fetched from anywhere."""

from __future__ import annotations

import base64
import gzip
import html
import json
from importlib.resources import files
from typing import Any

_SCRIPTS = ("base.js", "graph.js", "kernels.js", "charts.js", "main.js")


def page(report: dict[str, Any]) -> str:
    """The HTML of a report; the data is packed, and unpacked by the page itself."""
    folder = files("tilewright.cli.report") / "page"
    text = {name: (folder / name).read_text(encoding="utf-8") for name in (*_SCRIPTS, "style.css")}
    data = json.dumps(report, separators=(",", ":")).encode()
    parts = {
        "__TITLE__": html.escape(report["title"]),
        "__STYLE__": text["style.css"],
        "__DATA__": base64.b64encode(gzip.compress(data, mtime=0)).decode(),
        "__SCRIPT__": "\n".join(text[name] for name in _SCRIPTS),
    }
    made = (folder / "page.html").read_text(encoding="utf-8")
    for mark, content in parts.items():
        made = made.replace(mark, content)
    return made
