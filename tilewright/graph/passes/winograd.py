"""Computes convolutions with fewer products, where that pays (Winograd).

    y = conv_blocked(x, w, b, pads=[1, 1, 1, 1])
    -->
    v = winograd_tiles(x, pads=[1, 1, 1, 1], tile=4)           6×6 planes of transformed windows
    m = matmul(reshape(v), transformed w)                      each plane by its weights
    y = winograd_image(reshape(m), b, height=56, width=56)
    or all at once, for large images and with weights that stay as they are,
    y = winograd_strips(x, transformed w, b, pads=[1, 1, 1, 1])
    y = winograd_conv(x, w, b, pads=[1, 1, 1, 1], tile=4)

For float32 convolutions by constant 3×3 windows, neither strided nor dilated nor grouped, of images
with blocked channels. Which tiles are taken, if any, says a model of the machine: products,
transforms, and weights, of which there are 4 times as many for tiles of 4 and 1.8 for 2; none more
where they are transformed as they are used, which takes time instead. What weights grow by in all
is bounded: by a quarter of the program's constants, or 24 MiB if that is more
(`PassContext(options={"winograd_bytes": …})`). It goes where a byte saves most time.

Results differ by rounding. On random data they are within 5e-6 of the range of exact ones for up to
512 channels, and after 16 layers; direct convolution is within 3e-6 of it.
Infinities and NaNs reach all results of their tile. `disabled_passes={"winograd"}` turns it off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from tilewright.graph.builder import Builder
from tilewright.graph.context import Pass, PassContext
from tilewright.graph.ir import Array, Binding, Call, Module, Value, all_graphs
from tilewright.graph.layouts import Blocking
from tilewright.graph.ops.blocked import unblocked_array
from tilewright.graph.ops.winograd_planes import winograd_weights
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.transforms import TRANSFORMS
from tilewright.graph.types import known_dim
from tilewright.ir import Expr, evaluate, free_vars
from tilewright.target import Target

#: The shares of the machine's multiply-adds that direct convolutions and products come to.
_DIRECT, _PRODUCT = 0.85, 0.75
#: Cycles that a vector takes to be transformed, there and back, for each row of the matrix; and
#: that it takes to call two kernels more.
_TRANSFORM, _CALLS = 3.3, 10_000.0
#: Cycles that a vector of weights takes to be transformed where it is used, for each plane that is
#: made of it, and that it takes to add the sums over a block of channels to a vector of others.
_FACTORS, _SUMS = 2.3, 1.7
#: Bytes of weights that a core reads in a cycle.
_STREAM: Final = 4.0
#: How many times L2 a cache is taken to hold where there is no further one.
_FAR: Final = 8
#: Matrices of weights of a window of 3×3.
_WINDOW: Final = 9
#: Pixels along the side of an image of any size.
_USUAL: Final = 224
#: The part of the time of direct convolution that it has to stay below.
_WORTH: Final = 0.85
#: What weights may grow by: a part of all constants, or so many bytes.
_GROWTH, _FREE = 0.25, 24 << 20


def winograd(target: Target) -> Pass:
    """The pass for a machine."""
    blocking = Blocking(target)

    def winograd(module: Module) -> Module:
        """The module with convolutions by transformed tiles where they are faster."""
        forms = _chosen_forms(module, blocking)
        return _Winograd(forms).module(module) if forms else module

    return winograd


class _Form(NamedTuple):
    """How a convolution is computed: by tiles of so many results, with transformed weights or with
    weights that are transformed where they are used; all at once, or by strips of the image."""

    tile: int
    stored: bool
    strips: bool = False

    @property
    def planes(self) -> int:
        """Products for each tile."""
        return (self.tile + 2) ** 2

    @property
    def matrices(self) -> int:
        """Matrices of weights that are kept, of which a window of 3×3 has 9."""
        return self.planes if self.stored else _WINDOW


class _Sizes(NamedTuple):
    """What a convolution has of everything."""

    batch: int
    inputs: int
    outputs: int
    height: int
    width: int
    #: Channels in a block, before and after.
    blocks: tuple[int, int]
    #: Whether all of these are known.
    are_known: bool

    def tiles(self, tile: int) -> int:
        return self.batch * -(-self.height // tile) * -(-self.width // tile)


class _Winograd(Rewriter):
    def __init__(self, forms: Mapping[Value, _Form]) -> None:
        super().__init__()
        self._forms = forms

    def visit(self, binding: Binding) -> Sequence[Binding]:
        form = self._forms.get(binding.outputs[0])
        if form is None or not isinstance(binding.expr, Call):
            return (binding,)
        return _written(binding, binding.expr, form)


def _qualifies(call: Call) -> bool:
    """Whether it is a convolution that can be computed by transformed tiles."""
    if call.op.name != "conv_blocked" or call.attrs["groups"] != 1:
        return False
    x, weight, _ = call.args
    assert x is not None and weight is not None
    known = all(known_dim(d) is not None for d in (x.shape[1], x.shape[-1]))
    steps = (*call.attrs["strides"], *call.attrs["dilations"])
    plain = all(s == 1 for s in steps) and all(isinstance(p, int) for p in call.attrs["pads"])
    square = weight.ndim == 6 and [known_dim(d) for d in weight.shape[2:4]] == [3, 3]
    return square and plain and known and weight.is_constant and x.dtype.name == "float32"


def _sizes(call: Call, out: Value) -> _Sizes:
    x = call.args[0]
    assert x is not None
    _, outer, height, width, block = (_likely(d) for d in out.shape)
    blocks, inner = _likely(x.shape[1]), _likely(x.shape[-1])
    # Of a batch of any size, every image must be worth it.
    batch, channels = known_dim(x.shape[0]) or 1, (blocks * inner, outer * block)
    are_known = all(known_dim(d) is not None for d in x.shape)
    return _Sizes(batch, *channels, height, width, (inner, block), are_known)


def _likely(dim: Expr) -> int:
    """A size, or what becomes of it in an image of a usual one."""
    return max(1, int(evaluate(dim, dict.fromkeys(free_vars(dim), _USUAL))))


# ---- choosing -----------------------------------------------------------------------------------


class _Step(NamedTuple):
    """Another form of a convolution than that before: what it saves, and what it costs."""

    conv: Value
    before: _Form | None
    form: _Form
    cycles: float
    bytes: int

    @property
    def worth(self) -> float:
        return self.cycles / max(self.bytes, 1)


def _chosen_forms(module: Module, blocking: Blocking) -> dict[Value, _Form]:
    """The forms of convolutions, by their results, that fit in what weights may grow by."""
    bindings = [b for f in module.functions.values() for g in all_graphs(f) for b in g.body]
    steps = [s for b in bindings for s in _steps(b, blocking)]
    room = max(_FREE, int(_GROWTH * _constant_bytes(bindings)))
    left = int(PassContext.current().option("winograd_bytes", room))
    forms: dict[Value, _Form] = {}
    for step in sorted(steps, key=lambda s: s.worth, reverse=True):
        if forms.get(step.conv) == step.before and step.bytes <= left:
            forms[step.conv] = step.form
            left -= step.bytes
    return forms


def _steps(binding: Binding, blocking: Blocking) -> Iterator[_Step]:
    """Forms that pay, each after those that need less memory; what a byte saves gets less."""
    call = binding.expr
    if not isinstance(call, Call) or not _qualifies(call):
        return
    conv = binding.outputs[0]
    sizes = _sizes(call, conv)
    direct = _direct_cost(sizes, blocking)
    costs = {form: _cost(sizes, form, blocking) for form in _forms(sizes, blocking)}
    left = {form: cost for form, cost in costs.items() if cost <= _WORTH * direct}
    before, cycles, matrices = None, direct, _WINDOW
    while left:
        options = [_step(conv, before, f, cycles - c, matrices, sizes) for f, c in left.items()]
        best = max(options, key=lambda s: s.worth)
        yield best
        before, cycles, matrices = best.form, costs[best.form], best.form.matrices
        left = {f: c for f, c in left.items() if c < cycles and f.matrices > matrices}


def _forms(sizes: _Sizes, blocking: Blocking) -> list[_Form]:
    """The forms that a convolution can have."""
    target = blocking.target
    used = [t for t in TRANSFORMS if sizes.are_known and _sums_are_near(sizes, t, target)]
    stored = [_Form(t, stored=True, strips=_is_large(sizes, t, target)) for t in TRANSFORMS]
    return [*stored, *(_Form(t, stored=False) for t in used)]


def _sums_are_near(sizes: _Sizes, tile: int, target: Target) -> bool:
    """Whether what a block of channels adds to stays in the caches."""
    size = (tile + 2) ** 2 * sizes.tiles(tile) * sizes.blocks[1] * 4
    return size <= target.caches.l2 // 2


def _is_large(sizes: _Sizes, tile: int, target: Target) -> bool:
    """Whether an image is better taken by strips: transformed windows and products would not stay
    near, weights do; or all would have to come from memory."""
    caches, planes = target.caches, (tile + 2) ** 2
    moved = 4 * planes * sizes.tiles(tile) // sizes.batch * (sizes.inputs + sizes.outputs)
    weights = 4 * planes * sizes.inputs * sizes.outputs
    far = max(caches.l3 // 2, _FAR * caches.l2)
    is_long = moved > 2 * caches.l2 and weights <= caches.l2
    return sizes.are_known and (is_long or moved > far)


def _step(
    conv: Value, before: _Form | None, form: _Form, cycles: float, matrices: int, sizes: _Sizes
) -> _Step:
    more = (form.matrices - matrices) * sizes.inputs * sizes.outputs * 4
    return _Step(conv, before, form, cycles, more)


def _constant_bytes(bindings: Iterable[Binding]) -> int:
    values = (a for b in bindings for a in b.expr.args)
    arrays = [v.constant for v in values if v is not None and v.constant is not None]
    return sum({id(a): a.nbytes for a in arrays}.values())


# ---- costs --------------------------------------------------------------------------------------


def _direct_cost(sizes: _Sizes, blocking: Blocking) -> float:
    pixels = sizes.batch * sizes.height * sizes.width
    return _cycles(pixels, sizes, _WINDOW, _WINDOW, _DIRECT, blocking)


def _cost(sizes: _Sizes, form: _Form, blocking: Blocking) -> float:
    """Cycles for products and transforms."""
    tiles = sizes.tiles(form.tile)
    lanes = blocking.target.lanes("float32")
    moved = form.planes * tiles * (sizes.inputs + sizes.outputs) / 2 / lanes
    transforms = _TRANSFORM * (form.tile + 2) * moved
    products = _cycles(tiles, sizes, form.planes, form.matrices, _PRODUCT, blocking)
    if form.stored:
        return products + transforms + _CALLS
    factors = _FACTORS * sizes.inputs * sizes.outputs
    sums = _SUMS * tiles * sizes.outputs * sizes.inputs / sizes.blocks[0]
    return products + transforms + form.planes * (factors + sums) / lanes


def _cycles(
    rows: int, sizes: _Sizes, planes: int, matrices: int, share: float, blocking: Blocking
) -> float:
    """Cycles for so many rows by each plane, while all matrices of weights are read."""
    size, target = sizes.inputs * sizes.outputs, blocking.target
    products = rows * planes * size / (target.lanes("float32") * target.fma_ports * share)
    is_near = 4 * matrices * size <= target.caches.l2
    return products if is_near else max(products, 4 * matrices * size / _STREAM)


# ---- writing ------------------------------------------------------------------------------------


def _written(binding: Binding, call: Call, form: _Form) -> Sequence[Binding]:
    """The bindings that compute what `call` does; the last one gives the same value."""
    old, builder = binding.outputs[0], Builder()
    builder.origin = binding.origin
    for value in (call.args[0], call.args[2]):
        if value is not None:
            builder.own(value)
    write = _by_strips if form.strips else _by_products if form.stored else _at_once
    builder.output(write(builder, call, old, form.tile))
    *rest, last = builder.function().body
    return [*rest, Binding((old,), last.expr, last.origin)]


def _at_once(builder: Builder, call: Call, old: Value, tile: int) -> Value:
    """With weights that are transformed where they are used."""
    del old
    x, weight, bias = call.args
    assert x is not None and weight is not None and weight.constant is not None
    # What makes a vector of factors lies together.
    turned = np.ascontiguousarray(weight.constant.transpose(0, 1, 4, 2, 3, 5))
    kept = builder.constant(turned, name=weight.name)
    pads = call.attrs["pads"] or (0,) * 4
    return builder.emit("winograd_conv", x, kept, bias, pads=pads, tile=tile)


def _by_strips(builder: Builder, call: Call, old: Value, tile: int) -> Value:
    """With transformed weights, in one kernel."""
    x, weight, bias = call.args
    assert x is not None and weight is not None
    inner, outer = (known_dim(v.shape[-1]) or 1 for v in (x, old))
    made = _factors(weight, tile)
    blocks = made.reshape(tile + 2, tile + 2, -1, inner, made.shape[2] // outer, outer)
    factors = builder.constant(
        np.ascontiguousarray(blocks.transpose(0, 1, 4, 2, 3, 5)), name=weight.name
    )
    return builder.emit("winograd_strips", x, factors, bias, pads=call.attrs["pads"] or (0,) * 4)


def _by_products(builder: Builder, call: Call, old: Value, tile: int) -> Value:
    """With transformed weights."""
    x, weight, bias = call.args
    assert x is not None and weight is not None
    factors = builder.constant(_factors(weight, tile), name=weight.name)
    tiles = builder.emit("winograd_tiles", x, pads=call.attrs["pads"] or (0,) * 4, tile=tile)
    rows = builder.emit("reshape", tiles, shape=[factors.shape[0], -1, factors.shape[1]])
    product = builder.emit("matmul", rows, factors)
    shape = [*tiles.shape[:5], old.shape[1], old.shape[-1]]
    results = builder.emit("reshape", product, shape=shape)
    _, _, height, width, _ = old.shape
    return builder.emit("winograd_image", results, bias, height=height, width=width)


def _factors(weight: Value, tile: int) -> Array:
    """The transformed weights, a matrix for each plane."""
    packed = weight.constant
    assert packed is not None
    made = winograd_weights(unblocked_array(unblocked_array(packed, 0), 1), tile)
    return made.reshape(-1, *made.shape[2:])
