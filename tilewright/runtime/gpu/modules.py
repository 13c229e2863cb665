"""Loads kernels as modules of the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from tilewright.support import libcuda
from tilewright.support.errors import UserError
from tilewright.support.libcuda import CudaError


def loaded_module(
    entry: str, forms: Sequence[bytes], device: str, ask: Callable[..., None]
) -> ctypes.c_void_p:
    """A kernel's module, from the first form that the driver accepts; `ask` calls the driver."""
    module, refused = ctypes.c_void_p(), ""
    for code in forms:
        try:
            ask("cuModuleLoadData", ctypes.byref(module), code, needed=f"bytes for {entry}")
            return module
        except CudaError as error:
            if error.status not in libcuda.CODE_REFUSED:
                raise
            refused = error.reason
    raise UserError(
        f"{entry} cannot be loaded on {device}",
        reason=f"{refused}; the driver is for CUDA {libcuda.driver_version()}",
        remedy="update the driver, or compile the model anew for this GPU",
    )
