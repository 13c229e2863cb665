"""Holds an operator's native form against its NumPy reference.

    check("softmax", [x], axis=-1)

runs the reference; compares the types that the operator infers with what came out; compiles the
compute definition, the kernel or the decomposition; runs it on the same inputs; and compares. It
does so with the shapes as they are and once more with all dimensions symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.graph import (
    Builder,
    Function,
    OpDef,
    TensorType,
    Value,
    dtype_of,
    evaluate,
    find_op,
)
from tilewright.graph.evaluate import plain_attribute
from tilewright.ir import Expr, Var, free_vars, function_text
from tilewright.ir import evaluate as evaluate_expr
from tilewright.tensor import te

Array = np.ndarray[Any, Any]
Dims = dict[Var, int]


def check(
    name: str,
    inputs: Sequence[Any],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    symbolic: bool = True,
    expected: Any = None,
    **attrs: Any,
) -> list[Any]:
    """Compare native and reference results of an operator; returns the reference results.

    `symbolic=False` leaves out the run with symbolic dimensions, for operators whose type rule
    asks for numbers. `expected` is what the reference itself must give, where the test knows.
    """
    op = find_op(name)
    arrays = [None if a is None else np.asarray(a) for a in inputs]
    reference = references(op, arrays, attrs)
    if expected is not None:
        wanted = expected if isinstance(expected, list | tuple) else [expected]
        for got, want in zip(reference, wanted, strict=True):
            compare(got, np.asarray(want), rtol, atol, f"{name}: the reference")
    for is_symbolic in (False, True)[: 1 + symbolic]:
        values, dims = operands(arrays, is_symbolic)
        bound, full = op.bind(values, attrs)
        check_types(op, bound, full, dims, reference)
        results = run_native(op, bound, full, [*arrays, *[None] * (len(bound) - len(arrays))], dims)
        for k, (got, want) in enumerate(zip(results, reference, strict=True)):
            label = f"{name}, result {k}, {'symbolic' if is_symbolic else 'static'}"
            compare(got, np.asarray(want), rtol, atol, label)
    return reference


def references(op: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    bound, full = op.bind(arrays, attrs)
    return [np.asarray(r) for r in op.evaluate(bound, full)]


def operands(arrays: Sequence[Array | None], symbolic: bool) -> tuple[list[Any], Dims]:
    """Values for the arrays; equal extents (but for 1) share one symbolic dimension."""
    by_extent: dict[int, Var] = {}
    dims: Dims = {}

    def dim(extent: int) -> Any:
        if not symbolic or extent == 1:
            return extent
        var = by_extent.setdefault(extent, Var(f"n{extent}"))
        dims[var] = extent
        return var

    values = [
        None
        if a is None
        else Value(f"x{k}", TensorType(dtype_of(a.dtype), [dim(e) for e in a.shape]))
        for k, a in enumerate(arrays)
    ]
    return values, dims


def check_types(
    op: OpDef, values: Sequence[Any], attrs: dict[str, Any], dims: Dims, results: Sequence[Any]
) -> None:
    """The inferred types must be those of the reference's results."""
    types = op.infer(values, attrs)
    assert len(types) == len(results), f"{op.name} infers {len(types)} results"
    for type_, result in zip(types, results, strict=True):
        if not isinstance(type_, TensorType):
            continue
        assert type_.dtype.numpy == result.dtype, f"{op.name}: {type_} but {result.dtype}"
        assert type_.ndim == result.ndim, f"{op.name}: {type_} but {result.shape}"
        for dim, extent in zip(type_.shape, result.shape, strict=True):
            if free_vars(dim) <= set(dims):
                assert int(evaluate_expr(dim, dims)) == extent, (
                    f"{op.name}: {type_} but {result.shape}"
                )


def run_native(
    op: OpDef, values: Sequence[Any], attrs: dict[str, Any], arrays: Sequence[Any], dims: Dims
) -> list[Any]:
    """The results of the native form."""
    return _WAYS[op.how](op, values, attrs, arrays, dims)


def _by_compute(op: OpDef, values: Any, attrs: Any, arrays: Any, dims: Dims) -> list[Any]:
    types = op.infer(values, attrs)
    tensors = [None if v is None else te.placeholder(v.shape, v.dtype, v.name) for v in values]
    outs = op.define(tensors, attrs, types)
    for out, type_ in zip(outs, types, strict=True):
        assert TensorType(out.dtype, out.shape) == type_, f"{op.name} defines {out}, not {type_}"
    given = [t for t in tensors if t is not None]
    scalars = _loose_dims([t.shape for t in given], [t.shape for t in outs], attrs)
    function = te.function([*given, *scalars], list(outs), name=op.name)
    numbers = [dims[s] for s in scalars]
    return _run(function, [a for a in arrays if a is not None], numbers, types, dims)


def _by_kernel(op: OpDef, values: Any, attrs: Any, arrays: Any, dims: Dims) -> list[Any]:
    types = op.infer(values, attrs)
    function = op.loops(values, attrs)
    return _run(function, [a for a in arrays if a is not None], [], types, dims)


def _by_decomposition(op: OpDef, values: Any, attrs: Any, arrays: Any, dims: Dims) -> list[Any]:
    function = decomposed(op, values, attrs)
    return evaluate(function, [a for a in arrays if a is not None], apply=natively)


def decomposed(op: OpDef, values: Sequence[Any], attrs: dict[str, Any]) -> Function:
    """The decomposition as a function of its own."""
    b = Builder(op.name)
    inputs = [None if v is None else b.input(v.name, v.type) for v in values]
    b.output(*op.expand(b, inputs, attrs))
    return b.function()


def natively(op: OpDef, args: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    """Applies an operator to arrays by its native form; for `evaluate(…, apply=natively)`."""
    if op.how in ("host", "structural", "") or any(
        not isinstance(a, np.ndarray | None) for a in args
    ):
        return list(op.evaluate(args, attrs))
    values, dims = operands(args, symbolic=False)
    return run_native(op, values, attrs, args, dims)


def _run(function: Any, arrays: Any, numbers: Any, types: Any, dims: Dims) -> list[Any]:
    outs = [_filled(t, dims) for t in types]
    _built(function)(*[np.asarray(a, order="C") for a in arrays], *numbers, *outs)
    return outs


def _built(function: Any) -> Any:
    """The native form; decompositions come down to the same few functions again and again."""
    text = function_text(function)
    if text not in _BUILT:
        _BUILT[text] = tw.build(function, threads=1)
    return _BUILT[text]


_BUILT: dict[str, Any] = {}


def _filled(type_: TensorType, dims: Dims) -> Array:
    """An output array full of something that no result should be."""
    out = np.empty([plain_attribute(d, dims) for d in type_.shape], type_.dtype.numpy)
    out.view(np.uint8).fill(0x55 if type_.dtype.bits >= 8 else 0) if out.ndim and out.size else None
    return out


def _loose_dims(given: Any, wanted: Any, attrs: dict[str, Any]) -> list[Var]:
    """Symbolic dimensions that no operand's shape tells."""
    bare = {d for shape in given for d in shape if isinstance(d, Var)}
    used = {v for shape in wanted for d in shape for v in free_vars(d)}
    for value in attrs.values():
        parts = value if isinstance(value, tuple) else (value,)
        used |= {v for p in parts if isinstance(p, Expr) for v in free_vars(p)}
    return sorted(used - bare, key=lambda v: v.serial)


def compare(got: Any, want: Array, rtol: float, atol: float, label: str) -> None:
    got = np.asarray(got)
    assert got.shape == want.shape, f"{label}: {got.shape}, not {want.shape}"
    assert got.dtype == want.dtype, f"{label}: {got.dtype}, not {want.dtype}"
    kind = dtype_of(want.dtype)
    if kind.is_float:
        exact = 4.0 ** (kind.bits < 32) * max(rtol, 2.0**-(kind.float_format.mantissa))  # type: ignore[union-attr]
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), exact, atol, err_msg=label
        )
        return
    np.testing.assert_array_equal(got, want, err_msg=label)


_WAYS: dict[str, Callable[..., list[Any]]] = {
    "compute": _by_compute,
    "kernel": _by_kernel,
    "decompose": _by_decomposition,
    "host": lambda op, _values, attrs, arrays, _dims: [
        np.asarray(r) for r in op.evaluate(arrays, attrs)
    ],
}
