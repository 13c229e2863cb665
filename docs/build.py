"""Builds the documentation: Markdown pages and the reference, into one folder of plain HTML.

python docs/build.py build/docs
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
#: The pages in the order in which the menu lists them, by heading.
MENU = {
    "Start": [
        "index.md",
        "command_line.md",
        *(p.name for p in sorted(DOCS.glob("coming_from_*.md"))),
    ],
    "Lessons": [f"lessons/{p.name}" for p in sorted((DOCS / "lessons").glob("*.md"))],
    "Front ends": [f"frontends/{p.name}" for p in sorted((DOCS / "frontends").glob("*.md"))],
    "Details": [
        *("python.md", "quantization.md", "errors.md", "artifact.md"),
        *("device_runtime.md", "rpc_protocol.md", "rpc_threats.md", "serial_protocol.md"),
    ],
}
#: What users call; how it is done inside is read in the source.
REFERENCE = [
    *(
        "tilewright",
        "tilewright.graph",
        "tilewright.graph.rewriting.rewrite",
        "tilewright.frontends",
    ),
    *("tilewright.tensor", "tilewright.tensor.te", "tilewright.ops", "tilewright.schedule"),
    *("tilewright.ir", "tilewright.target", "tilewright.runtime", "tilewright.rpc"),
    *("tilewright.onnx_backend", "tilewright.quantize"),
    *("tilewright.insight.taps", "tilewright.insight.roof", "tilewright.insight.predict"),
]
_TEMPLATE = (DOCS / "page.html").read_text(encoding="utf-8")


def main(output: Path) -> None:
    import pdoc

    shutil.rmtree(output, ignore_errors=True)
    pages = [name for names in MENU.values() for name in names if (DOCS / name).exists()]
    for name in pages:
        target = output / Path(name).with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_page(name, pages), encoding="utf-8")
    shutil.copytree(DOCS / "pictures", output / "pictures", ignore=shutil.ignore_patterns("*.py"))
    for name in REFERENCE:
        _show_facade(import_module(name))
    pdoc.pdoc(*_alone(REFERENCE), output_directory=output / "reference")
    print(f"{len(pages)} pages and the reference in {output}")


def _show_facade(module: Any) -> None:
    """What a façade takes from its room is shown on its page, as if it were defined there."""
    if hasattr(module, "__all__") or not hasattr(module, "__path__"):
        return
    shown = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    module.__all__ = [
        n for n, v in shown.items() if str(getattr(v, "__module__", "")).startswith("tilewright.")
    ]


def _alone(modules: list[str]) -> list[str]:
    """Modules as pdoc takes them, each without what lies inside."""
    return [spec for name in modules for spec in (name, f"!{re.escape(name)}[.]")]


def _page(name: str, pages: list[str]) -> str:
    from pygments.formatters import HtmlFormatter

    text = (DOCS / name).read_text(encoding="utf-8")
    up = "../" * name.count("/")
    parts = {
        "__TITLE__": html.escape(_title(text)),
        "__UP__": up,
        "__MENU__": _menu(name, pages, up),
        "__CODE_STYLE__": HtmlFormatter(style="friendly").get_style_defs(".code"),
        "__BODY__": _linked(_markdown().render(text)),
    }
    made = _TEMPLATE
    for mark, content in parts.items():
        made = made.replace(mark, content)
    return made


def _markdown() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"highlight": _coloured}).enable("table")


def _coloured(code: str, language: str, _attributes: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    if not language:
        return f"<pre>{html.escape(code)}</pre>"
    # markdown-it leaves what begins with <pre> as it is.
    inner = highlight(code, get_lexer_by_name(language), HtmlFormatter(nowrap=True))
    return f'<pre class="code">{inner}</pre>'


def _linked(text: str) -> str:
    """Links between pages lead to their HTML."""
    return re.sub(r'href="([^":]+)\.md(#[^"]*)?"', r'href="\1.html\2"', text)


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ").strip()


def _menu(current: str, pages: list[str], up: str) -> str:
    lines: list[str] = []
    for heading, names in MENU.items():
        lines.append(f"<h2>{heading}</h2>")
        for name in (n for n in names if n in pages):
            title = html.escape(_title((DOCS / name).read_text(encoding="utf-8")))
            chosen = ' class="on"' if name == current else ""
            lines.append(f'<a{chosen} href="{up}{Path(name).with_suffix(".html")}">{title}</a>')
    lines.append("<h2>Reference</h2>")
    for name in REFERENCE:
        lines.append(f'<a href="{up}reference/{name.replace(".", "/")}.html">{name}</a>')
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs"))
