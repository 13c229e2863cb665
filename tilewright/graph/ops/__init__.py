"""The operator library: one folder per family; every file in it is imported.

To add an operator, put it into a file of its family, or add a file; nothing else changes. An
operator is declared by its type rule:

    @op
    def leaky_relu(x: Value, *, alpha: float = 0.01) -> Type:
        '''x where it is positive, alpha * x elsewhere.'''
        return x.type

    @leaky_relu.reference                    # NumPy; the meaning of the operator
    def leaky_relu_reference(x: Array, *, alpha: float) -> Array:
        return np.where(x > 0, x, x * x.dtype.type(alpha))

    @leaky_relu.compute                      # te tensors; one of compute, kernel, decompose
    def leaky_relu_compute(x: te.Tensor, *, alpha: float) -> te.Tensor:
        return mapped(lambda e: te.select(e > 0, e, e * alpha), x)

The type rule gets `Value`s: `x.type`, `x.dtype`, `x.shape`, `x.ndim`; `x.constant` (an array or
None); `x.known` (elements that are known at compile time, as expressions). It returns a type, or
several. It raises `UserError` with the reason; whoever called it adds the text of the call.

Operands: `x: Value`, `bias: Value | None = None`, `*xs: Value`. Attributes: keywords of the kinds
in `graph.ir.attributes` (int, float, bool, str, DType, Array, Dim, Ints, Floats, Strings, Dims).

Structure (axes, target shapes, pads, sizes) is given by attributes, not operands. Attributes that
may depend on the sizes of inputs are of the kind `Dim` or `Dims`: integers, or expressions over
symbolic dimensions. A front end gets them from a tensor's `known` elements, or makes them with
`builder.read`. The reference gets plain numbers in their place.

Sizes that depend on data: the type rule returns `fresh_dim("count")`; `decompose` computes the
count, reads it with `builder.read` and passes it to operators that take it as an attribute.

`@f.symbolic` propagates known elements (shape arithmetic). The conditions of a type rule on
dimensions (`graph.sizes.agreement`: `require_equal` and its kin; `broadcast_shapes`) are checked at
run time where dimensions are symbolic, so compare these by such functions only. `@op(pure=False)`
is for random numbers, `@op(host=True)` for strings, `@op(structural=True)` for what the calling
program does itself (sequences, optionals).

`@f.part`, `@f.item`, `@f.join` and `@op(view=True)` say where a result needs no memory of its own:
see `graph.fusion.sharing`.

`@f.layouts` says how it computes images with blocked channels, where it can: see
`graph.layouts.images`, whose rules (`elementwise_layouts`, `window_layouts`,
`along_axis_layouts`) fit most operators; `@f.cost` gives the cost of the plain form in comparison.

A reference that gives one list (a sequence) returns it in a tuple: a bare list is several results.

Test each operator with `tests/graph/harness.py`, which compares its native form to the reference.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages


@cache
def load_families() -> None:
    """Import all files below this folder: they declare the operators."""
    for module in walk_packages(__path__, f"{__name__}."):
        import_module(module.name)
