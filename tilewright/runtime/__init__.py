"""The runtime: arrays in, native code, arrays out."""

from tilewright.runtime.amx import request_amx
from tilewright.runtime.binding import TensorSpec
from tilewright.runtime.executor import CompiledModel, Program
from tilewright.runtime.function import NativeFunction
from tilewright.runtime.signature import ArrayParam, Dim, ScalarParam, Signature
from tilewright.runtime.threads import install, is_installed

__all__ = [
    "ArrayParam",
    "CompiledModel",
    "Dim",
    "NativeFunction",
    "Program",
    "ScalarParam",
    "Signature",
    "TensorSpec",
    "install",
    "is_installed",
    "request_amx",
]
