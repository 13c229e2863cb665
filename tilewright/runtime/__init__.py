"""The runtime: arrays in, native code, arrays out."""

from tilewright.runtime.amx import request_amx
from tilewright.runtime.arrays import (
    LastingMemory,
    aligned_empty,
    in_memory,
    let_files_go,
    let_go,
    return_free_memory,
)
from tilewright.runtime.artifact import (
    Artifact,
    Build,
    CaseKey,
    CasesContents,
    CompiledContents,
    Contents,
    HostedContents,
    Key,
    Keys,
    Recording,
    StoredBuild,
    checksum_of,
    make_key_pair,
    recording_seal,
    save_models,
    seal_in,
    seal_of,
)
from tilewright.runtime.binding import (
    ANY_SIZE,
    LIST_KINDS,
    DimensionsDifferError,
    ListSpec,
    NativeSpec,
    Spec,
    StoppedError,
    TensorSpec,
    UnsuitedError,
    ValueSpec,
    bind_inputs,
    bind_outputs,
    in_order,
)
from tilewright.runtime.cases import CasesModel, LoadedCases, shape_of
from tilewright.runtime.crossed import Crossed
from tilewright.runtime.described import (
    UnreadableError,
    signature_data,
    signature_from,
    target_data,
    target_from,
)
from tilewright.runtime.device import BACK, CPU, TO_DEVICE, Copied, Device, LaunchTime
from tilewright.runtime.devices import device_for, why_no_device
from tilewright.runtime.dlpack import as_array
from tilewright.runtime.executor import BoundModel, CompiledModel
from tilewright.runtime.function import NativeFunction
from tilewright.runtime.gpu.device import LaunchingDevice
from tilewright.runtime.gpu.image import KernelImage, kernels_in
from tilewright.runtime.gpu.launcher import Launched
from tilewright.runtime.gpu.ordering import Ordering, Touched
from tilewright.runtime.kernel import KernelCode, PackedKernel, Preparation
from tilewright.runtime.objectfile import names_of
from tilewright.runtime.program import Program, TargetInfo
from tilewright.runtime.runnable import Inputs, RunnableModel
from tilewright.runtime.signature import ArrayParam, Dim, ScalarParam, Signature
from tilewright.runtime.threads import install, is_installed
from tilewright.runtime.trials.alone import kept, preparing_signature, signature_alone
from tilewright.runtime.trials.answers import why_wrong
from tilewright.runtime.trials.arguments import copied, made_up_arguments
from tilewright.runtime.trials.bundle import BundleWriter, writing_bundle
from tilewright.runtime.trials.bundled import BundledOutcome, measure_bundle
from tilewright.runtime.trials.measured import LONG, MARGIN, SHORT, Failure, Measured, TrialError
from tilewright.runtime.trials.process import START, TrialProcess, seconds_allowed
from tilewright.runtime.trials.running import SAMPLE, SAMPLES, copy_count, judged
from tilewright.runtime.trials.serve import TrialServer, begin_message
from tilewright.runtime.trials.task import TrialTask
from tilewright.runtime.trials.within import TrialModel

__all__ = [
    "ANY_SIZE",
    "BACK",
    "CPU",
    "LIST_KINDS",
    "LONG",
    "MARGIN",
    "SAMPLE",
    "SAMPLES",
    "SHORT",
    "START",
    "TO_DEVICE",
    "ArrayParam",
    "Artifact",
    "BoundModel",
    "Build",
    "BundleWriter",
    "BundledOutcome",
    "CaseKey",
    "CasesContents",
    "CasesModel",
    "CompiledContents",
    "CompiledModel",
    "Contents",
    "Copied",
    "Crossed",
    "Device",
    "Dim",
    "DimensionsDifferError",
    "Failure",
    "HostedContents",
    "Inputs",
    "KernelCode",
    "KernelImage",
    "Key",
    "Keys",
    "LastingMemory",
    "LaunchTime",
    "Launched",
    "LaunchingDevice",
    "ListSpec",
    "LoadedCases",
    "Measured",
    "NativeFunction",
    "NativeSpec",
    "Ordering",
    "PackedKernel",
    "Preparation",
    "Program",
    "Recording",
    "RunnableModel",
    "ScalarParam",
    "Signature",
    "Spec",
    "StoppedError",
    "StoredBuild",
    "TargetInfo",
    "TensorSpec",
    "Touched",
    "TrialError",
    "TrialModel",
    "TrialProcess",
    "TrialServer",
    "TrialTask",
    "UnreadableError",
    "UnsuitedError",
    "ValueSpec",
    "aligned_empty",
    "as_array",
    "begin_message",
    "bind_inputs",
    "bind_outputs",
    "checksum_of",
    "copied",
    "copy_count",
    "device_for",
    "in_memory",
    "in_order",
    "install",
    "is_installed",
    "judged",
    "kept",
    "kernels_in",
    "let_files_go",
    "let_go",
    "made_up_arguments",
    "make_key_pair",
    "measure_bundle",
    "names_of",
    "preparing_signature",
    "recording_seal",
    "request_amx",
    "return_free_memory",
    "save_models",
    "seal_in",
    "seal_of",
    "seconds_allowed",
    "shape_of",
    "signature_alone",
    "signature_data",
    "signature_from",
    "target_data",
    "target_from",
    "why_no_device",
    "why_wrong",
    "writing_bundle",
]
