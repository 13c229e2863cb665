"""Element types and tensors of PyTorch as the graph's; memory is shared, not copied."""

from __future__ import annotations

from typing import Any, Final

from tilewright.frontends.torch.package import torch_package
from tilewright.graph import Array
from tilewright.ir import DType
from tilewright.support.errors import UserError

_NAMES: Final = frozenset(
    """bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64
    float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu""".split()
)
#: The real types of the parts of complex numbers.
_PARTS: Final = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
#: Integers as wide as types that NumPy lacks, in which torch gives their bits.
_BITS: Final = {16: "int16", 8: "uint8"}


def type_name(dtype: Any) -> str:
    """torch.float32 as "float32"."""
    return str(dtype).removeprefix("torch.")


def is_complex(dtype: Any) -> bool:
    """Whether elements are complex numbers."""
    return type_name(dtype) in _PARTS


def element_type(dtype: Any, what: str = "a tensor") -> DType:
    """Our element type for one of torch's; that of the parts for complex numbers."""
    name = _PARTS.get(type_name(dtype), type_name(dtype))
    if name not in _NAMES:
        raise UserError(f"{what} has elements of {dtype}", reason="there is no such type here")
    return DType.of(name)


def array_of(tensor: Any) -> Array:
    """A tensor in the CPU's memory as an array over the same memory."""
    torch = torch_package()
    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UserError(
            f"a weight is a tensor of layout {tensor.layout}",
            reason="only dense tensors can be compiled",
            remedy="call .to_dense() or .dequantize() on it first",
        )
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        return tensor.numpy()
    element = element_type(tensor.dtype)
    if element.numpy.isbuiltin == 1:
        return tensor.numpy()
    return tensor.view(getattr(torch, _BITS[element.bits])).numpy().view(element.numpy)
