"""The runtime: arrays in, native code, arrays out."""

from tilewright.runtime.amx import request_amx
from tilewright.runtime.arrays import (
    aligned_empty,
    in_memory,
    let_files_go,
    let_go,
    return_free_memory,
)
from tilewright.runtime.artifact import (
    Artifact,
    Build,
    Candidate,
    CaseKey,
    CasesContents,
    CompiledContents,
    Contents,
    HostedContents,
    Key,
    Keys,
    checksum_of,
    make_key_pair,
    save_models,
    seal_of,
)
from tilewright.runtime.binding import (
    ANY_SIZE,
    LIST_KINDS,
    DimensionsDifferError,
    ListSpec,
    NativeSpec,
    Spec,
    TensorSpec,
    ValueSpec,
    bind_inputs,
    in_order,
)
from tilewright.runtime.cases import CasesModel, LoadedCases, shape_of
from tilewright.runtime.device import CPU, Device
from tilewright.runtime.devices import device_for, why_no_device
from tilewright.runtime.executor import BoundModel, CompiledModel
from tilewright.runtime.function import NativeFunction
from tilewright.runtime.gpu.device import LaunchingDevice
from tilewright.runtime.gpu.launcher import Launched
from tilewright.runtime.program import Program, TargetInfo
from tilewright.runtime.runnable import Inputs, RunnableModel
from tilewright.runtime.signature import ArrayParam, Dim, ScalarParam, Signature
from tilewright.runtime.threads import install, is_installed

__all__ = [
    "ANY_SIZE",
    "CPU",
    "LIST_KINDS",
    "ArrayParam",
    "Artifact",
    "BoundModel",
    "Build",
    "Candidate",
    "CaseKey",
    "CasesContents",
    "CasesModel",
    "CompiledContents",
    "CompiledModel",
    "Contents",
    "Device",
    "Dim",
    "DimensionsDifferError",
    "HostedContents",
    "Inputs",
    "Key",
    "Keys",
    "Launched",
    "LaunchingDevice",
    "ListSpec",
    "LoadedCases",
    "NativeFunction",
    "NativeSpec",
    "Program",
    "RunnableModel",
    "ScalarParam",
    "Signature",
    "Spec",
    "TargetInfo",
    "TensorSpec",
    "ValueSpec",
    "aligned_empty",
    "bind_inputs",
    "checksum_of",
    "device_for",
    "in_memory",
    "in_order",
    "install",
    "is_installed",
    "let_files_go",
    "let_go",
    "make_key_pair",
    "request_amx",
    "return_free_memory",
    "save_models",
    "seal_of",
    "shape_of",
    "why_no_device",
]
