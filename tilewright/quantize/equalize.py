"""Equalizes the ranges of channels: outliers of activations are moved into weights.

    y = matmul(layer_norm(x, scale, bias), w)
    -->
    y = matmul(layer_norm(x, scale / s, bias / s), w · s)           s: a factor for each channel

The result is the same, but channels that are quantized with one scale are of similar size. This is
known as smoothing for transformers, and as cross-layer equalization where the weights of the
preceding convolution are scaled down, through operators that commute with positive scaling. The
choice of factors is a parameter: `activation_scales.py` has another, for quantized weights alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from tilewright.graph import (
    Array,
    Binding,
    Builder,
    Call,
    Module,
    Node,
    Rewriter,
    Value,
    all_graphs,
    weighted,
)
from tilewright.quantize.layers import Layer, is_convolution
from tilewright.quantize.observe import Statistics

#: The share of the difference between channels that is moved into weights.
_SHARE: Final = 0.5
#: Larger factors would only move the outliers.
_LIMIT: Final = 1e3
#: Operators f with f(x · s) = f(x) · s for positive s, one for each channel.
_HOMOGENEOUS: Final = frozenset(["relu", "leaky_relu", "max_pool", "avg_pool", "identity"])
_NORMS: Final = frozenset(["layer_norm", "rms_norm"])

#: A factor for each input channel of layers that share their input.
ChooseFactors = Callable[[Sequence[Layer]], Array]


def equalized(
    module: Module, layers: Sequence[Layer], statistics: Mapping[Value, Statistics]
) -> Module:
    """The module with channels of similar size; the same module if nothing can be moved."""

    def choose(users: Sequence[Layer]) -> Array:
        return _balanced(statistics[users[0].x].greatest, users)

    return rescaled(module, layers, choose)


def rescaled(module: Module, layers: Sequence[Layer], choose: ChooseFactors) -> Module:
    """The module with weights of layers multiplied by chosen factors, and their inputs divided by
    them; the same module if nothing can be moved."""
    rewriter = _Scaling(_factors(module, layers, choose))
    return module if not rewriter.makers else rewriter.module(module)


class _Factors:
    """The factors by channel: divisors of makers' results, multipliers of users' weights."""

    def __init__(self) -> None:
        self.makers: dict[Value, Array] = {}
        self.users: dict[Value, Array] = {}


def _factors(module: Module, layers: Sequence[Layer], choose: ChooseFactors) -> _Factors:
    made = {b.outputs[0]: b.expr for b in module.main.body if len(b.outputs) == 1}
    uses = _uses(module)
    found = _Factors()
    for x in dict.fromkeys(layer.x for layer in layers):
        users = [layer for layer in layers if layer.x is x]
        axes = {_channel_axis(layer.call, x) for layer in users}
        maker = _maker(x, axes, made, uses) if len(users) == uses[x] else None
        if maker is not None and maker not in found.makers:
            factors = choose(users)
            found.makers[maker] = factors
            found.users.update({layer.output: factors for layer in users})
    return found


def _uses(module: Module) -> Counter[Value]:
    """The number of uses of each value, including those in nested graphs."""
    found = Counter[Value]()
    for graph in all_graphs(module.main):
        found.update(graph.results)
        found.update(a for b in graph.body for a in b.expr.args if a is not None)
    return found


def _channel_axis(call: Call, value: Value) -> int:
    """The channel axis of an operand or result of a layer."""
    return 1 if is_convolution(call) else value.ndim - 1


def _maker(
    x: Value, axes: set[int], made: Mapping[Value, Node], uses: Mapping[Value, int]
) -> Value | None:
    """The value before `x` whose constants can absorb factors of its channels, along `axes`."""
    call = made.get(x)
    if not isinstance(call, Call):
        return None
    if _divider(call) is not None:
        return x if axes == {_channel_axis(call, x)} else None
    # Either operand of a product can absorb them.
    count = 1 if call.op.name in _HOMOGENEOUS else 2 if call.op.name == "mul" else 0
    for before in call.args[:count]:
        if before is not None and uses[before] == 1 and before.ndim == x.ndim:
            found = _maker(before, axes, made, uses)
            if found is not None and found.shape[max(axes)] is x.shape[max(axes)]:
                return found
    return None


def _balanced(greatest: Array, users: Sequence[Layer]) -> Array:
    """A factor for each channel, so that activations and weights become about equally uneven."""
    weights = np.max([_input_sizes(layer) for layer in users], axis=0)
    with np.errstate(all="ignore"):
        factors = greatest.astype(np.float64) ** _SHARE / weights ** (1 - _SHARE)
    return around_one(factors)


def around_one(factors: Array) -> Array:
    """Factors relative to their geometric mean, within limits; 1 for unknown ones."""
    known = np.isfinite(factors) & (factors > 0)
    if not known.any():
        return np.ones_like(factors)
    mean = np.exp(np.log(factors[known]).mean())
    return np.where(known, np.clip(factors / mean, 1 / _LIMIT, _LIMIT), 1.0)


def _input_sizes(layer: Layer) -> Array:
    """The magnitude of the largest weight that multiplies each channel of x."""
    sizes = np.abs(layer.array).astype(np.float64)
    if layer.call.op.name != "conv":
        return sizes.max(axis=tuple(k for k in range(sizes.ndim) if k != 1 - layer.axis))
    # Outputs only depend on the channels of their group.
    groups = layer.call.attrs["groups"]
    by_group = sizes.reshape(groups, sizes.shape[0] // groups, sizes.shape[1], -1)
    return by_group.max(axis=(1, 3)).reshape(-1)


# ---- rewriting ----------------------------------------------------------------------------------


class _Scaling(Rewriter):
    def __init__(self, factors: _Factors) -> None:
        super().__init__()
        self.makers, self._users = factors.makers, factors.users

    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        output = binding.outputs[0] if len(binding.outputs) == 1 else None
        if not isinstance(call, Call) or output is None:
            return (binding,)
        changed = call
        if output in self._users:
            changed = _inputs_multiplied(changed, self._users[output])
        if output in self.makers:
            divide = _divider(changed)
            assert divide is not None
            changed = divide(changed, self.makers[output])
        if changed is call:
            return (binding,)
        return (Binding(binding.outputs, changed, binding.origin),)


def _inputs_multiplied(call: Call, factors: Array) -> Call:
    row = weighted(call)
    weight = call.args[1]
    assert row is not None and weight is not None and weight.constant is not None
    return _with(call, {1: weight.constant * row.by_input(call, weight.constant, factors)})


def _divider(call: Call) -> Callable[[Call, Array], Call] | None:
    """A function that divides a call's result by factors, through the call's constants."""
    if call.op.name in _NORMS:
        return _norm_divided if _is_last_axis(call) else None
    if call.op.name in ("conv", "conv_transpose", "gemm", "dense", "matmul") and _is_weighted(call):
        return _product_divided
    return None


def _is_weighted(call: Call) -> bool:
    plain = call.attrs.get("alpha", 1) == 1 == call.attrs.get("beta", 1)
    return weighted(call) is not None and plain and not call.attrs.get("transpose_a")


def _is_last_axis(call: Call) -> bool:
    x, scale, *bias = call.args
    assert x is not None
    is_last = call.attrs["axis"] in (-1, x.ndim - 1) and not call.attrs.get("return_stats")
    return is_last and scale is not None and all(p is None or p.is_constant for p in (scale, *bias))


def _norm_divided(call: Call, factors: Array) -> Call:
    found = {k: a.constant for k, a in enumerate(call.args) if a is not None}
    return _with(call, {k: a / factors for k, a in found.items() if a is not None})


def _product_divided(call: Call, factors: Array) -> Call:
    row = weighted(call)
    weight = call.args[1]
    assert row is not None and weight is not None and weight.constant is not None
    arrays = {1: weight.constant * row.by_output(call, weight.constant, 1 / factors)}
    bias = None if row.bias is None else call.args[row.bias]
    if bias is not None and bias.constant is not None and row.bias is not None:
        arrays[row.bias] = bias.constant / factors
    return _with(call, arrays)


def _with(call: Call, arrays: Mapping[int, Array]) -> Call:
    """The call with other constants."""
    b, args = Builder(), list(call.args)
    for k, array in arrays.items():
        old = args[k]
        assert old is not None
        args[k] = b.constant(array.astype(old.dtype.numpy), old.dtype, old.name)
    return Call(call.op, args, call.attrs)
