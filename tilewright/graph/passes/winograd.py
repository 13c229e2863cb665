"""Computes convolutions by Winograd's algorithm, with fewer products, where that pays.

    y = conv_blocked(x, w, b, pads=[1, 1, 1, 1])
    -->
    v = winograd_tiles(x, pads=[1, 1, 1, 1], tiles=[4, 4])     6×6 planes of transformed windows
    m = matmul(reshape(v), transformed w)                      each plane by its weights
    y = winograd_image(reshape(m), b, height=56, width=56, tiles=[4, 4])
    or in one kernel, for large images, or with weights that are transformed where they are used,
    y = winograd_strips(x, transformed w, b, pads=[1, 1, 1, 1])
    y = winograd_conv(x, w, b, pads=[1, 1, 1, 1], tile=4)

For float32 convolutions by constant weights, neither dilated nor grouped, of images with blocked
channels. A model of the machine (`graph.winograd.cost`) chooses the tiles, if any: it counts
products, transforms, and reading the weights. Transformed weights are 4 times as large for tiles of
4×4 results of 3×3 taps, and 1.8 times for 2×2; weights that are transformed where they are used do
not grow, but take time in every run. All weights together may grow by a quarter of the program's
constants, or by 24 MiB if that is more (`PassContext(options={"winograd_bytes": …})`), which is
spent where a byte saves most.

Results differ by rounding. On random data they are within 5e-6 of the range of exact ones for up to
512 channels, and after 16 layers; direct convolution is within 3e-6 of it.
Infinities and NaNs reach all results of their tile; convolutions by enormous weights, whose sums
could overflow where results do not, are left alone. `disabled_passes={"winograd"}` turns it off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Array, Binding, Call, Module, Value, all_graphs
from tilewright.graph.ir.types import known_dim
from tilewright.graph.ops.forms.winograd_planes import winograd_weights
from tilewright.graph.rewriting.context import Pass, PassContext
from tilewright.graph.rewriting.decisions import Decision, decision_key, joint_key
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.graph.winograd.cost import (
    Axes,
    ConvSizes,
    WinogradForm,
    direct_cost,
    form_costs,
    paying,
    planes_of,
    sizes_of,
    worth_measuring,
)
from tilewright.target import Target

#: Weights may grow by this fraction of all constants, or by this many bytes if that is more.
_GROWTH, _LEAST_GROWTH = 0.25, 24 << 20
#: Weights of this magnitude and above are not transformed.
_LARGE = 1e18
#: Names in decisions: the convolution as it is; equal convolutions in several forms.
_DIRECT, _MIXED = "direct", "as memory allows"


def winograd(target: Target) -> Pass:
    """The pass for a machine."""

    def winograd(module: Module) -> Module:
        """The module with Winograd's algorithm for convolutions that it makes faster."""
        forms = _chosen_forms(module, target)
        return _Winograd(forms).module(module) if forms else module

    return winograd


class _Winograd(Rewriter):
    def __init__(self, forms: Mapping[Value, WinogradForm]) -> None:
        super().__init__()
        self._forms = forms

    def visit(self, binding: Binding) -> Sequence[Binding]:
        if not isinstance(binding.expr, Call) or binding.outputs[0] not in self._forms:
            return (binding,)
        return _written(binding, binding.expr, self._forms[binding.outputs[0]])


# ---- choosing -----------------------------------------------------------------------------------


class _Conv(NamedTuple):
    """A convolution that may have other forms, and the costs of these."""

    value: Value
    #: Equal for convolutions that are the same but for their weights.
    key: str
    sizes: ConvSizes
    direct: float
    costs: Mapping[WinogradForm, float]

    def growth(self, form: WinogradForm | None, matrices: int | None = None) -> int:
        """Bytes by which a form's weights exceed those of `matrices`, or of the window itself."""
        if form is None:
            return 0
        before = self.sizes.window if matrices is None else matrices
        return (form.matrices - before) * self.sizes.inputs * self.sizes.outputs * 4


class _Change(NamedTuple):
    """A step from one form of a convolution to a faster one: cycles saved, further bytes."""

    conv: Value
    before: WinogradForm | None
    form: WinogradForm
    cycles: float
    bytes: int

    @property
    def worth(self) -> float:
        return self.cycles / max(self.bytes, 1)


def _chosen_forms(module: Module, target: Target) -> dict[Value, WinogradForm]:
    """The forms of convolutions, by their results, within the limit on the growth of weights."""
    bindings = [b for f in module.functions.values() for g in all_graphs(f) for b in g.body]
    convs = [c for b in bindings if (c := _conv(b, target)) is not None]
    if not convs:
        return {}
    room = max(_LEAST_GROWTH, int(_GROWTH * _constant_bytes(bindings)))
    left = int(PassContext.current().option("winograd_bytes", room))
    own = _by_worth(convs, left)
    given: dict[Value, WinogradForm | None] = {}
    for conv, form in _given_forms(convs, own, target):
        if conv.growth(form) <= left:
            given[conv.value] = form
            left -= conv.growth(form)
    if not given:
        return own
    others = _by_worth([c for c in convs if c.value not in given], left)
    return others | {value: form for value, form in given.items() if form is not None}


def _conv(binding: Binding, target: Target) -> _Conv | None:
    call = binding.expr
    if not isinstance(call, Call) or call.op.name != "conv_blocked":
        return None
    value = binding.outputs[0]
    sizes = sizes_of(call, value.tensor)
    if sizes is None or not _is_moderate(call.args[1]):
        return None
    costs = form_costs(sizes, target)
    key = decision_key(call, [value.type])
    return _Conv(value, key, sizes, direct_cost(sizes, target), costs) if costs else None


def _given_forms(
    convs: Sequence[_Conv], own: Mapping[Value, WinogradForm], target: Target
) -> Iterator[tuple[_Conv, WinogradForm | None]]:
    """The forms of convolutions for which a decision overrules the cost model."""
    alike: dict[str, list[_Conv]] = {}
    for conv in convs:
        alike.setdefault(conv.key, []).append(conv)
    for key, group in alike.items():
        first, forms = group[0], list(dict.fromkeys(own.get(c.value) for c in group))
        tried = [*forms, None, *worth_measuring(first.costs, first.sizes, target)]
        named = {str(form or _DIRECT): form for form in dict.fromkeys(tried)}
        # Equal convolutions differ where memory suffices for some of them only.
        options = tuple(named) if len(forms) == 1 else (_MIXED, *named)
        decision = Decision(
            joint_key("winograd", key),
            "winograd",
            str(first.sizes),
            options,
            len(group),
            first.direct * len(group),
        )
        taken = PassContext.current().decide(target, decision)
        if taken != decision.default:
            yield from ((conv, named[taken]) for conv in group)


def _by_worth(convs: Iterable[_Conv], left: int) -> dict[Value, WinogradForm]:
    """The forms by which convolutions become faster, those that save most per byte first."""
    forms: dict[Value, WinogradForm] = {}
    steps = [step for conv in convs for step in _steps(conv)]
    for step in sorted(steps, key=lambda s: s.worth, reverse=True):
        if forms.get(step.conv) == step.before and step.bytes <= left:
            forms[step.conv] = step.form
            left -= step.bytes
    return forms


def _steps(conv: _Conv) -> Iterator[_Change]:
    """Forms that pay, each after those that need less memory; each saves less per further byte."""
    left, before = paying(conv.costs, conv.direct), None
    cycles, matrices = conv.direct, conv.sizes.window
    while left:
        options = [
            _Change(conv.value, before, f, cycles - c, conv.growth(f, matrices))
            for f, c in left.items()
        ]
        best = max(options, key=lambda s: s.worth)
        yield best
        before, cycles, matrices = best.form, conv.costs[best.form], best.form.matrices
        left = {f: c for f, c in left.items() if c < cycles and f.matrices > matrices}


def _is_moderate(weight: Value | None) -> bool:
    """Whether weights are finite, and their sums far from overflow."""
    assert weight is not None and weight.constant is not None
    array = weight.constant
    return not array.size or bool(max(array.max(), -array.min()) < _LARGE)


def _constant_bytes(bindings: Iterable[Binding]) -> int:
    values = (a for b in bindings for a in b.expr.args)
    arrays = [v.constant for v in values if v is not None and v.constant is not None]
    return sum({id(a): a.nbytes for a in arrays}.values())


# ---- writing ------------------------------------------------------------------------------------


def _written(binding: Binding, call: Call, form: WinogradForm) -> Sequence[Binding]:
    """The bindings that compute what `call` does; the last one gives the same value."""
    old, builder = binding.outputs[0], Builder()
    builder.origin = binding.origin
    for value in (call.args[0], call.args[2]):
        if value is not None:
            builder.own(value)
    write = _by_strips if form.strips else _by_products if form.stored else _at_once
    builder.output(write(builder, call, old, form))
    *rest, last = builder.function().body
    return [*rest, Binding((old,), last.expr, last.origin)]


def _at_once(builder: Builder, call: Call, old: Value, form: WinogradForm) -> Value:
    """With weights that are transformed where they are used."""
    del old
    x, weight, bias = call.args
    assert x is not None and weight is not None and weight.constant is not None
    # The taps of one vector of transformed weights are stored together.
    transposed = np.ascontiguousarray(weight.constant.transpose(0, 1, 4, 2, 3, 5))
    kept = builder.constant(transposed, name=weight.name)
    pads = call.attrs["pads"] or (0,) * 4
    return builder.emit("winograd_conv", x, kept, bias, pads=pads, tile=form.axes[0].tile)


def _by_strips(builder: Builder, call: Call, old: Value, form: WinogradForm) -> Value:
    """With transformed weights, in one kernel."""
    x, weight, bias = call.args
    assert x is not None and weight is not None
    inner, outer = (known_dim(v.shape[-1]) or 1 for v in (x, old))
    size, made = form.axes[0].planes, _factors(weight, form.axes)
    blocks = made.reshape(size, size, -1, inner, made.shape[2] // outer, outer)
    factors = builder.constant(
        np.ascontiguousarray(blocks.transpose(0, 1, 4, 2, 3, 5)), name=weight.name
    )
    return builder.emit("winograd_strips", x, factors, bias, pads=call.attrs["pads"] or (0,) * 4)


def _by_products(builder: Builder, call: Call, old: Value, form: WinogradForm) -> Value:
    """With transformed weights: a sum of terms. A term without transforms is added last."""
    first, *others = sorted(form.terms, key=lambda a: (planes_of(a) == 1, planes_of(a)))
    total = _term(builder, call, old, first, call.args[2])
    for axes in others:
        total = builder.emit("add", _term(builder, call, old, axes, None), total)
    return total


def _term(builder: Builder, call: Call, old: Value, axes: Axes, bias: Value | None) -> Value:
    x, weight, _ = call.args
    assert x is not None and weight is not None
    factors = builder.constant(_factors(weight, axes), name=weight.name)
    kernel, strides, taps, tiles, phases = zip(*axes, strict=True)
    windows = builder.emit(
        "winograd_tiles",
        x,
        pads=call.attrs["pads"] or (0,) * 4,
        kernel=kernel,
        strides=strides,
        taps=taps,
        tiles=tiles,
        phases=phases,
    )
    rows = builder.emit("reshape", windows, shape=[factors.shape[0], -1, factors.shape[1]])
    product = builder.emit("matmul", rows, factors)
    shape = [*windows.shape[:5], old.shape[1], old.shape[-1]]
    results = builder.emit("reshape", product, shape=shape)
    _, _, height, width, _ = old.shape
    return builder.emit(
        "winograd_image", results, bias, height=height, width=width, taps=taps, tiles=tiles
    )


def _factors(weight: Value, axes: Axes) -> Array:
    """The transformed weights, a matrix for each plane."""
    packed = weight.constant
    assert packed is not None
    _, blocks, high, wide, block, _ = packed.shape
    taps = packed.transpose(2, 3, 1, 4, 0, 5).reshape(high, wide, blocks * block, -1)
    made = winograd_weights(taps, axes)
    return made.reshape(planes_of(axes), -1, made.shape[-1])
