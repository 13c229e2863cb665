"""Tilewright compiles trained deep-learning models into native code.

Only public names live here, and heavy imports stay lazy: `import tilewright` loads neither LLVM
nor any frontend.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilewright import frontends, graph, ops, rpc
    from tilewright.compile import build, compile
    from tilewright.graph import PassContext, PassPrinter, PassTimer, PassVerifier
    from tilewright.ir import DType, Function
    from tilewright.kernels.module import Module
    from tilewright.models.artifact import load, save
    from tilewright.models.model import Model
    from tilewright.quantize import quantize
    from tilewright.schedule import Schedule
    from tilewright.support.errors import InternalError, UserError
    from tilewright.target import Target
    from tilewright.tensor import script, te
    from tilewright.tune import TuneRoom

    tune: TuneRoom

#: Where each public name lives; it is imported when it is first used.
_HOMES = {
    "DType": "tilewright.ir",
    "Function": "tilewright.ir",
    "InternalError": "tilewright.support.errors",
    "Model": "tilewright.models.model",
    "Module": "tilewright.kernels.module",
    "PassContext": "tilewright.graph",
    "PassPrinter": "tilewright.graph",
    "PassTimer": "tilewright.graph",
    "PassVerifier": "tilewright.graph",
    "Schedule": "tilewright.schedule",
    "Target": "tilewright.target",
    "UserError": "tilewright.support.errors",
    "build": "tilewright.compile",
    "compile": "tilewright.compile",
    "frontends": "tilewright.frontends",
    "graph": "tilewright.graph",
    "load": "tilewright.models.artifact",
    "ops": "tilewright.ops",
    "quantize": "tilewright.quantize",
    "save": "tilewright.models.artifact",
    "rpc": "tilewright.rpc",
    "script": "tilewright.tensor",
    "te": "tilewright.tensor",
    "tune": "tilewright.tune",
}

__all__ = [
    "DType",
    "Function",
    "InternalError",
    "Model",
    "Module",
    "PassContext",
    "PassPrinter",
    "PassTimer",
    "PassVerifier",
    "Schedule",
    "Target",
    "UserError",
    "build",
    "compile",
    "frontends",
    "graph",
    "load",
    "ops",
    "quantize",
    "rpc",
    "save",
    "script",
    "te",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    is_room = home.__name__ == f"{__name__}.{name}"
    value = globals()[name] = home if is_room else getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
