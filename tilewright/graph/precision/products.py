"""Products of matrices in float32, by any operator, and convolutions, for passes to retype."""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.types import TensorType, known_dim
from tilewright.graph.rewriting.context import PassContext
from tilewright.ir import DType

_FLOAT32: Final = DType.of("float32")
#: Fewest pixels and channels of a convolution that is changed.
_LEAST: Final = 16


class MatrixProduct(NamedTuple):
    """A call as rows of `x` by columns of `weight`, times `factor`, plus `addend`."""

    x: Value
    weight: Value
    #: Whether the weights are transposed: one row, not one column, for each output.
    transposed: bool
    factor: float = 1.0
    addend: Value | None = None
    addend_factor: float = 1.0

    @property
    def columns(self) -> Array | None:
        """The weights with a column for each output, where they are a constant matrix."""
        array = self.weight.constant
        if array is None or array.ndim != 2:
            return None
        return array.T if self.transposed else array

    def scaled_addend(self, b: Builder) -> Value | None:
        """The addend, times its factor."""
        if self.addend is None or self.addend_factor == 1:
            return self.addend
        return b.emit("mul", self.addend, np.float32(self.addend_factor))


def written(product: MatrixProduct, b: Builder) -> Value:
    """The product, summed in float32, of factors whose type was changed."""
    x, weight = product.x, product.weight
    result = b.emit("matmul", x, weight, transpose_b=product.transposed, dtype=_FLOAT32)
    if product.factor != 1:
        result = b.emit("mul", result, np.float32(product.factor))
    if product.addend is not None:
        result = b.emit("add", result, product.scaled_addend(b))
    return result


def as_product(call: Call) -> MatrixProduct | None:
    """The call as a product with computed rows, if it is one in float32."""
    found = PRODUCTS[call.op.name](call) if call.op.name in PRODUCTS else None
    if found is None or found.x.is_constant or found.x.ndim < 2 or found.weight.ndim < 2:
        return None
    return found if found.x.dtype is _FLOAT32 else None


def _of_matmul(call: Call) -> MatrixProduct | None:
    if call.attrs["transpose_a"]:
        return None
    x, weight = _operands(call)
    return MatrixProduct(x, weight, call.attrs["transpose_b"])


def _of_dense(call: Call) -> MatrixProduct | None:
    x, weight = _operands(call)
    return MatrixProduct(x, weight, True, addend=call.args[2])


def _of_gemm(call: Call) -> MatrixProduct | None:
    if call.attrs["transpose_a"]:
        return None
    x, weight = _operands(call)
    alpha, beta, transposed = (call.attrs[n] for n in ("alpha", "beta", "transpose_b"))
    return MatrixProduct(x, weight, transposed, alpha, call.args[2], beta)


def is_dense_convolution(call: Call) -> bool:
    """Whether it is a convolution in float32 that instructions for other types can compute: by
    constants, of channels that can be in blocks, and with many pixels, of known number.
    """
    x, weight, bias = call.args
    assert x is not None and weight is not None
    constant = weight.is_constant and (bias is None or bias.is_constant)
    if x.dtype is not _FLOAT32 or x.is_constant or not constant or call.attrs["groups"] != 1:
        return False
    (out,) = call.op.infer(call.args, call.attrs)
    assert isinstance(out, TensorType)
    pixels = prod(known_dim(d) or 0 for d in out.shape[2:])
    channels = (known_dim(d) or 0 for d in weight.shape[:2])
    # Channels are put into blocks from level 2 on.
    planned = PassContext.current().opt_level >= 2
    return planned and min(pixels, *channels) >= _LEAST


def _operands(call: Call) -> tuple[Value, Value]:
    x, weight = call.args[:2]
    assert x is not None and weight is not None
    return x, weight


#: Operators that may be such products.
PRODUCTS: Final = {"matmul": _of_matmul, "dense": _of_dense, "gemm": _of_gemm}
