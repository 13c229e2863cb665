"""Compute definitions: tensors given by formulas, and the loop functions made of them.

n = te.var("n")
A = te.placeholder((n, 64), name="A")
k = te.reduce_axis(64, name="k")
S = te.compute((n,), lambda i: te.sum(te.exp(A[i, k]), axis=k), name="S")
main = te.function([A], [S])
"""

# pyright: reportUnusedImport=false
from tilewright.ir import (
    address_of,
    all_of,
    any_of,
    cast,
    const,
    maximum,
    minimum,
    reinterpret,
    select,
)
from tilewright.tensor.te.compute import Compute, compute
from tilewright.tensor.te.extern import Extern, call_extern, extern
from tilewright.tensor.te.function import function
from tilewright.tensor.te.math import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    clip,
    clz,
    coarse_exp,
    coarse_sigmoid,
    copysign,
    cos,
    cosh,
    ctz,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floordiv,
    floormod,
    fma,
    if_then_else,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    mulhi,
    mulhi_doubled,
    popcount,
    pow,
    round,
    rsqrt,
    shift_nearest,
    sigmoid,
    signbit,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tilewright.tensor.te.reducers import all, any, argmax, argmin, max, min, prod, sum
from tilewright.tensor.te.reduction import ReduceAxis, Reducer, Reduction, comm_reducer, reduce_axis
from tilewright.tensor.te.scan import Scan, scan
from tilewright.tensor.te.tensor import Definition, Placeholder, Tensor, placeholder, var
