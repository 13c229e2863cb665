"""Dependencies point one way, cross a room's border through its façade, and stay light."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder

PACKAGE = Path(__file__).parent.parent / "tilewright"

_BASE = {"support", "ir"}
_ANALYSIS = _BASE | {"arith", "target"}
_STAGES = _ANALYSIS | {"tensor", "graph", "schedule", "lower", "codegen", "runtime"}

#: Room -> what it may import.
#: Modules at the top of the package (`compile.py`, `__init__.py`) see everything.
ALLOWED: dict[str, set[str]] = {
    "support": set(),
    "ir": {"support"},
    "arith": _BASE,
    "target": _BASE,
    "tensor": _BASE | {"arith"},
    "schedule": _ANALYSIS,
    "lower": _ANALYSIS,
    # The executor is also a device of the runtime.
    "simt": _BASE | {"arith", "runtime"},
    # A back end owns its list of lowering passes.
    "codegen": _ANALYSIS | {"lower"},
    "runtime": {"support"},
    "graph": _ANALYSIS | {"tensor"},
    "frontends": _BASE | {"graph"},
    "kernels": _STAGES,
    "models": _STAGES | {"frontends", "kernels"},
    # What serves a device needs no compiler.
    "rpc": {"support", "target", "runtime", "models"},
    # The runtime in C, and what compiles it.
    "device_runtime": {"support", "target", "codegen", "runtime"},
    "reproducers": {"*"},
    "insight": {"*"},
    "quantize": {"*"},
    "tune": {"*"},
    "cli": {"*"},
}
#: Rooms whose modules are imported one by one: what loads a model must not load a compiler.
NO_FACADE = {"support", "kernels", "models", "insight"}


class Import(NamedTuple):
    """One import of a part of the package: `tilewright.<room>[.<rest>]`."""

    file: Path
    line: int
    importer: str
    room: str
    rest: str

    @property
    def module(self) -> str:
        return f"{self.room}.{self.rest}" if self.rest else self.room

    def __str__(self) -> str:
        return f"{self.file.relative_to(PACKAGE.parent)}:{self.line}: imports {self.module}"


def _room_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def _is_module(dotted: str) -> bool:
    path = PACKAGE.joinpath(*dotted.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


@functools.cache
def _facade_names(room: str) -> frozenset[str]:
    """The names that a façade offers; one may be called like the file it comes from."""
    file = PACKAGE.joinpath(*room.split("."), "__init__.py")
    if not file.exists():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for n in froms for alias in n.names)


def _modules_named(node: ast.AST) -> Iterator[str]:
    """The modules that an import statement loads; `from room import module` names the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            offered = alias.name in _facade_names(node.module.removeprefix("tilewright."))
            is_module = _is_module(full.removeprefix("tilewright.")) and not offered
            yield full if is_module else node.module


def _imports_of(file: Path, source: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source, str(file))):
        for module in set(_modules_named(node)):
            head, _, inner = module.partition(".")
            if head == "tilewright" and inner:
                room, _, rest = inner.partition(".")
                line = getattr(node, "lineno", 0)
                yield Import(file, line, _room_of(file), room, rest)


@functools.cache
def _all_imports() -> list[Import]:
    files = sorted(PACKAGE.rglob("*.py"))
    return [i for f in files for i in _imports_of(f, f.read_text(encoding="utf-8"))]


def _crosses_rooms(found: Import) -> bool:
    return bool(found.importer) and found.importer != found.room


def _is_allowed(found: Import) -> bool:
    allowed = ALLOWED.get(found.importer, set())
    return "*" in allowed or found.room in allowed or found.module in allowed


def _goes_through_facade(found: Import) -> bool:
    return not found.rest or found.room in NO_FACADE


def _layering_faults(imports: list[Import]) -> list[str]:
    return [
        f"{i}, but {i.importer} may import only {sorted(ALLOWED.get(i.importer, set()))}"
        for i in imports
        if _crosses_rooms(i) and not _is_allowed(i)
    ]


def _facade_faults(imports: list[Import]) -> list[str]:
    return [
        f"{i}; import the name from tilewright.{i.room} instead"
        for i in imports
        if i.importer != i.room and not _goes_through_facade(i)
    ]


def test_every_room_has_a_place_in_the_order() -> None:
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert rooms <= set(ALLOWED), f"name in ALLOWED: {sorted(rooms - set(ALLOWED))}"


def test_dependencies_point_one_way() -> None:
    assert not (faults := _layering_faults(_all_imports())), "\n".join(faults)


def test_borders_are_crossed_through_facades() -> None:
    assert not (faults := _facade_faults(_all_imports())), "\n".join(faults)


@pytest.mark.parametrize(
    ("room", "source", "layering", "facade"),
    [
        ("ir", "from tilewright.lower import lower", True, False),
        ("runtime", "from tilewright.support.dtype import DType", False, False),
        ("runtime", "from tilewright.support import dtype", False, False),
        ("runtime", "from tilewright.ir import DType", True, False),
        ("lower", "from tilewright.arith import simplify", False, False),
        ("arith", "def f():\n    import tilewright.ir.expr", False, True),
        ("lower", "from tilewright.support.errors import UserError", False, False),
        ("lower", "from tilewright.lower.flatten import flatten", False, False),
    ],
)
def test_the_checks_see_what_they_should(
    room: str, source: str, layering: bool, facade: bool
) -> None:
    found = list(_imports_of(PACKAGE / room / "example.py", source))
    assert bool(_layering_faults(found)) == layering
    assert bool(_facade_faults(found)) == facade


#: Lines of a file, and files of a folder, at most.
_LONGEST, _FULLEST = 400, 25


def test_files_and_folders_stay_small() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    lengths = {
        f.relative_to(PACKAGE).as_posix(): len(f.read_text(encoding="utf-8").splitlines())
        for f in files
    }
    long = {name: n for name, n in lengths.items() if n > _LONGEST}
    counts = Counter(f.parent.relative_to(PACKAGE).as_posix() for f in files)
    assert not long
    assert not {folder: n for folder, n in counts.items() if n > _FULLEST}


def test_every_folder_is_a_package() -> None:
    folders = {f.parent for f in PACKAGE.rglob("*.py")}
    assert not [f for f in folders if not (f / "__init__.py").exists()]


def test_import_is_light() -> None:
    heavy = "{'llvmlite', 'onnx', 'torch', 'rich'}"
    script = f"import sys, tilewright; print(*sorted({heavy} & set(sys.modules)))"
    assert _said(script) == [], "import tilewright must stay lazy"


@pytest.mark.skipif(sys.platform != "linux", reason="LLVM links code on other systems")
def test_a_saved_model_runs_without_the_compiler(tmp_path: Path) -> None:
    b = Builder()
    b.output(b.matmul(b.input("x", "f32", (4, 8)), np.ones((8, 8), np.float32)))
    tw.compile(b.build()).save(tmp_path / "m.twm")
    script = f"""if True:
        import sys, numpy, tilewright as tw
        model = tw.load({str(tmp_path / "m.twm")!r})
        assert model.run([numpy.ones((4, 8), numpy.float32)])[0][0, 0] == 8
        print(*(n for n in sys.modules if n == "llvmlite" or n.startswith("tilewright.")))
    """
    loaded = _said(script)
    assert "llvmlite" not in loaded
    assert {n.split(".")[1] for n in loaded} == {"models", "runtime", "support", "target"}


def _said(script: str) -> list[str]:
    """The words that a process of its own prints."""
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()
