"""The file of a reproducer: TOML, to be read by people and by `tilewright reproduce`."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright import __version__
from tilewright.reproducers.failure import Failure
from tilewright.support.denormals import denormals_of
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.graph import PassContext
    from tilewright.kernels.compiled import Options
    from tilewright.target import Target

_FORMAT: Final = 1
_HEAD: Final = """\
# A fault of Tilewright, for a bug report. `tilewright reproduce FILE` runs it again.
# It holds none of the model's weights; names and shapes are those of the model.
"""


@dataclass(frozen=True)
class Conditions:
    """What was compiled for, and how."""

    target: str
    opt_level: int = 3
    precision: str = "float32"
    disabled_passes: tuple[str, ...] = ()
    #: Options of passes that are plain numbers or text.
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    #: Whether the graph was verified after each pass.
    verify: bool = False
    checked: bool = False
    denormals: str = "flush"
    #: What passes took in place of their own choices, by the keys of decisions.
    decisions: Mapping[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def of(target: Target, context: PassContext, checked: bool) -> Conditions:
        from tilewright.graph import PassVerifier

        plain = (int, float, str, bool)
        return Conditions(
            str(target),
            context.opt_level,
            context.precision,
            tuple(sorted(context.disabled_passes)),
            {k: v for k, v in context.options.items() if isinstance(v, plain)},
            any(isinstance(i, PassVerifier) for i in context.instruments),
            checked,
            context.denormals,
            dict(context.decisions.get(target.machine, {})),
        )

    def kernel_options(self) -> Options:
        from tilewright.kernels.compiled import Options

        merges = self.context().merges_kernels
        return Options(self.checked, denormals_of(self.denormals), merges=merges)

    def context(self) -> PassContext:
        from tilewright.graph import PassContext, PassVerifier
        from tilewright.target import Target

        return PassContext(
            self.opt_level,
            self.disabled_passes,
            self.precision,
            options=self.options,
            instruments=[PassVerifier()] if self.verify else [],
            denormals=denormals_of(self.denormals),
            decisions={Target.of(self.target).machine: self.decisions},
        )


@dataclass(frozen=True)
class Reproducer:
    """A fault, and what shows it again."""

    #: "pass", "graph" (native code for a graph after all passes), "kernel", "onnx"; or "none".
    kind: str
    #: The name of the pass or of the kernel.
    name: str
    conditions: Conditions
    failure: Failure
    #: The graph or the loops in the text form, or a model as bytes in base64.
    subject: str = ""
    #: What takes the place of the constants in a graph: "random" or "zeros".
    filling: str = "random"
    #: Constants that are part of the structure: "zeros", "ones", or their elements.
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    #: The nodes of the model that the subject comes from.
    nodes: tuple[str, ...] = ()
    #: Whether the subject was seen to fail in the same way.
    fails: bool = False
    note: str = ""

    def text(self) -> str:
        """The contents of the file."""
        return _HEAD + "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        c, f = self.conditions, self.failure
        yield from (f"format = {_FORMAT}", f"tilewright = {_value(__version__)}")
        yield f"machine = {_value(_machine())}"
        yield f"kind = {_value(self.kind)}"
        yield f"name = {_value(self.name)}"
        yield f"nodes = {_value(list(self.nodes))}"
        yield f"fails = {_value(self.fails)}"
        yield f"note = {_value(self.note)}"
        yield f"filling = {_value(self.filling)}"
        yield f"subject = {_block(self.subject)}"
        yield from ("", "[conditions]")
        yield f"target = {_value(c.target)}"
        yield f"opt_level = {c.opt_level}"
        yield f"precision = {_value(c.precision)}"
        yield f"disabled_passes = {_value(list(c.disabled_passes))}"
        yield f"verify = {_value(c.verify)}"
        yield f"checked = {_value(c.checked)}"
        yield f"denormals = {_value(c.denormals)}"
        yield from ("", "[failure]")
        yield f"exception = {_value(f.exception)}"
        yield f"place = {_value(f.place)}"
        yield f"message = {_block(f.message)}"
        yield f"traceback = {_block(f.traceback)}"
        yield from ("", "[options]")
        yield from (f"{_value(k)} = {_value(v)}" for k, v in c.options.items())
        yield from ("", "[constants]")
        yield from (f"{_value(k)} = {_value(v)}" for k, v in self.constants.items())

    def write(self, folder: Path) -> Path:
        """Write the file into a folder, beside what is there already."""
        folder.mkdir(parents=True, exist_ok=True)
        data = self.text().encode(errors="replace")
        name = f"tilewright-fault-{hashlib.sha256(data).hexdigest()[:12]}"
        path = folder / f"{name}.txt"
        if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
            return path
        if os.path.lexists(path):
            path = folder / f"{name}-{os.urandom(4).hex()}.txt"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
        except OSError:
            # Half a file, on a full disk, would be of no use.
            path.unlink(missing_ok=True)
            raise
        return path


def _machine() -> str:
    import llvmlite
    import numpy as np

    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    return f"{platform.platform()}, {versions}, llvmlite {llvmlite.__version__}"


def _value(value: Any) -> str:
    """TOML on one line. Its strings are JSON's, but that DEL must be escaped."""
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _block(text: str) -> str:
    """Text over several lines as it is, where that can be."""
    odd = "'''" in text or any((c < " " and c not in "\n\t") or c == "\x7f" for c in text)
    return _value(text) if odd or "\n" not in text else f"'''\n{text}'''"


# ---- reading ------------------------------------------------------------------------------------


def read_reproducer(path: str | os.PathLike[str]) -> Reproducer:
    """The reproducer that a file holds."""
    try:
        data = tomllib.loads(Path(path).read_bytes().decode())
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"it is no reproducer ({error})") from None
    if data.get("format") != _FORMAT:
        raise _refused(path, f"its format is {data.get('format')}, not {_FORMAT}")
    try:
        return _reproducer_of(data)
    except (KeyError, TypeError) as error:
        raise _refused(path, f"it is not complete ({type(error).__name__}: {error})") from None


def _reproducer_of(data: dict[str, Any]) -> Reproducer:
    conditions = dict(data["conditions"], options=data.get("options", {}))
    conditions["disabled_passes"] = tuple(conditions["disabled_passes"])
    texts = {k: str(data[k]) for k in ("kind", "name", "subject", "filling", "note")}
    return Reproducer(
        conditions=Conditions(**conditions),
        failure=Failure(**{k: str(v) for k, v in data["failure"].items()}),
        constants=dict(data.get("constants", {})),
        nodes=tuple(map(str, data["nodes"])),
        fails=bool(data["fails"]),
        **texts,
    )


def _refused(path: str | os.PathLike[str], reason: str) -> UserError:
    return UserError(
        f"cannot read the reproducer {os.fspath(path)}",
        reason=reason,
        remedy="pass a file that the message of an InternalError names",
    )
