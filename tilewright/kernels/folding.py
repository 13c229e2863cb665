"""Evaluates calls on constants by native code, while a model is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph import Array, Call, PassContext, Value
from tilewright.kernels.build import build_loops
from tilewright.runtime import let_go
from tilewright.target import Target
from tilewright.tensor import te


def fold_natively(call: Call, outputs: Sequence[Value]) -> list[Array]:
    """The results of a call whose operands are constants."""
    operands = [None if a is None else te.placeholder(a.shape, a.dtype, a.name) for a in call.args]
    made = call.op.define(operands, call.attrs, tuple(v.type for v in outputs))
    function = te.function([t for t in operands if t is not None], list(made), name="folded")
    constants = [a.constant for a in call.args if a is not None and a.constant is not None]
    arrays = [np.require(a, requirements=["C", "A"]) for a in constants]
    results = [np.empty(v.tensor.static_shape, v.dtype.numpy) for v in outputs]
    # Same mode as in the model, for the same results.
    denormals = PassContext.current().denormals
    build_loops(function, Target.of("llvm"), denormals=denormals)(*arrays, *results)
    for array in constants:
        let_go(array)
    return results
