"""The runtime: arrays in, native code, arrays out."""

from tilewright.runtime.amx import request_amx
from tilewright.runtime.arrays import aligned_empty
from tilewright.runtime.binding import TensorSpec, ValueSpec, bind_inputs, in_order
from tilewright.runtime.executor import CompiledModel, Program
from tilewright.runtime.function import NativeFunction
from tilewright.runtime.runnable import Inputs, RunnableModel
from tilewright.runtime.signature import ArrayParam, Dim, ScalarParam, Signature
from tilewright.runtime.threads import install, is_installed

__all__ = [
    "ArrayParam",
    "CompiledModel",
    "Dim",
    "Inputs",
    "NativeFunction",
    "Program",
    "RunnableModel",
    "ScalarParam",
    "Signature",
    "TensorSpec",
    "ValueSpec",
    "aligned_empty",
    "bind_inputs",
    "in_order",
    "install",
    "is_installed",
    "request_amx",
]
