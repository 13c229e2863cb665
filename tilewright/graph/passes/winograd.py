"""Computes convolutions with fewer products, where that pays (Winograd).

    y = conv_blocked(x, w, b, pads=[1, 1, 1, 1])
    -->
    v = winograd_tiles(x, pads=[1, 1, 1, 1], tile=4)           6×6 planes of transformed windows
    m = matmul(reshape(v), transformed w)                      each plane by its weights
    y = winograd_image(reshape(m), b, height=56, width=56)

For float32 convolutions by constant 3×3 windows, neither strided nor dilated nor grouped, of images
with blocked channels. Which tiles are taken, if any, says a model of the machine: products,
transforms, and weights, of which there are 4 times as many for tiles of 4 and 1.8 for 2. What
weights grow by in all is bounded: by a quarter of the program's constants, or 24 MiB if that is
more (`PassContext(options={"winograd_bytes": …})`). It goes where a byte saves most time.

Results differ by rounding. On random data they are within 5e-6 of the range of exact ones for up to
512 channels, and after 16 layers; direct convolution is within 3e-6 of it.
Infinities and NaNs reach all results of their tile. `disabled_passes={"winograd"}` turns it off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tilewright.graph.builder import Builder
from tilewright.graph.context import Pass, PassContext
from tilewright.graph.ir import Array, Binding, Call, Module, Value, all_graphs
from tilewright.graph.layouts import Blocking
from tilewright.graph.ops.blocked import unblocked_array
from tilewright.graph.ops.conv_winograd import TRANSFORMS, winograd_weights
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.types import known_dim
from tilewright.ir import Expr, evaluate, free_vars
from tilewright.target import Target

#: The shares of the machine's multiply-adds that direct convolutions and products come to.
_DIRECT, _PRODUCT = 0.85, 0.75
#: Cycles that a vector takes to be transformed, there and back, for each row of the matrix; and
#: that it takes to call two kernels more.
_TRANSFORM, _CALLS = 3.3, 10_000.0
#: Bytes of weights that a core reads in a cycle.
_STREAM: Final = 4.0
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
        tiles = _chosen_tiles(module, blocking)
        return _Winograd(tiles).module(module) if tiles else module

    return winograd


class _Sizes(NamedTuple):
    """What a convolution has of everything."""

    batch: int
    inputs: int
    outputs: int
    height: int
    width: int


class _Winograd(Rewriter):
    def __init__(self, tiles: Mapping[Value, int]) -> None:
        super().__init__()
        self._tiles = tiles

    def visit(self, binding: Binding) -> Sequence[Binding]:
        tile = self._tiles.get(binding.outputs[0])
        if tile is None or not isinstance(binding.expr, Call):
            return (binding,)
        return _written(binding, binding.expr, tile)


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
    return _Sizes(known_dim(x.shape[0]) or 1, blocks * inner, outer * block, height, width)


def _likely(dim: Expr) -> int:
    """A size, or what becomes of it in an image of a usual one."""
    return max(1, int(evaluate(dim, dict.fromkeys(free_vars(dim), _USUAL))))


# ---- choosing -----------------------------------------------------------------------------------


class _Step(NamedTuple):
    """Other tiles for a convolution than those before: what that saves, and what it costs."""

    conv: Value
    before: int | None
    tile: int
    cycles: float
    bytes: int

    @property
    def worth(self) -> float:
        return self.cycles / self.bytes


def _chosen_tiles(module: Module, blocking: Blocking) -> dict[Value, int]:
    """The tiles of convolutions, by their results, that fit in what weights may grow by."""
    bindings = [b for f in module.functions.values() for g in all_graphs(f) for b in g.body]
    steps = [s for b in bindings for s in _steps(b, blocking)]
    room = max(_FREE, int(_GROWTH * _constant_bytes(bindings)))
    left = int(PassContext.current().option("winograd_bytes", room))
    tiles: dict[Value, int] = {}
    for step in sorted(steps, key=lambda s: s.worth, reverse=True):
        if tiles.get(step.conv) == step.before and step.bytes <= left:
            tiles[step.conv] = step.tile
            left -= step.bytes
    return tiles


def _steps(binding: Binding, blocking: Blocking) -> Iterator[_Step]:
    """Tiles that pay, each after those that need less memory; what a byte saves gets less."""
    call = binding.expr
    if not isinstance(call, Call) or not _qualifies(call):
        return
    conv = binding.outputs[0]
    sizes = _sizes(call, conv)
    direct = _direct_cost(sizes, blocking)
    costs = {tile: _cost(sizes, tile, blocking) for tile in TRANSFORMS}
    left = {tile: cost for tile, cost in costs.items() if cost <= _WORTH * direct}
    before, cycles, planes = None, direct, 9
    while left:
        options = [_step(conv, before, t, cycles - c, planes, sizes) for t, c in left.items()]
        best = max(options, key=lambda s: s.worth)
        yield best
        before, cycles, planes = best.tile, costs[best.tile], _planes(best.tile)
        left = {t: c for t, c in left.items() if c < cycles and _planes(t) > planes}


def _step(
    conv: Value, before: int | None, tile: int, cycles: float, planes: int, sizes: _Sizes
) -> _Step:
    more = (_planes(tile) - planes) * sizes.inputs * sizes.outputs * 4
    return _Step(conv, before, tile, cycles, more)


def _planes(tile: int) -> int:
    """Matrices of weights, of which a window of 3×3 has 9."""
    return (tile + 2) ** 2


def _constant_bytes(bindings: Iterable[Binding]) -> int:
    values = (a for b in bindings for a in b.expr.args)
    arrays = [v.constant for v in values if v is not None and v.constant is not None]
    return sum({id(a): a.nbytes for a in arrays}.values())


# ---- costs --------------------------------------------------------------------------------------


def _direct_cost(sizes: _Sizes, blocking: Blocking) -> float:
    pixels = sizes.batch * sizes.height * sizes.width
    return _cycles(pixels, sizes, 9, _DIRECT, blocking)


def _cost(sizes: _Sizes, tile: int, blocking: Blocking) -> float:
    """Cycles for products and transforms."""
    tiles = sizes.batch * -(-sizes.height // tile) * -(-sizes.width // tile)
    planes = _planes(tile)
    lanes = blocking.target.lanes("float32")
    moved = planes * tiles * (sizes.inputs + sizes.outputs) / 2 / lanes
    transforms = _TRANSFORM * (tile + 2) * moved
    return _cycles(tiles, sizes, planes, _PRODUCT, blocking) + transforms + _CALLS


def _cycles(rows: int, sizes: _Sizes, planes: int, share: float, blocking: Blocking) -> float:
    """Cycles for so many rows by each plane of weights, which are read meanwhile."""
    weights = planes * sizes.inputs * sizes.outputs
    target = blocking.target
    products = rows * weights / (target.lanes("float32") * target.fma_ports * share)
    is_near = 4 * weights <= target.caches.l2
    return products if is_near else max(products, 4 * weights / _STREAM)


# ---- writing ------------------------------------------------------------------------------------


def _written(binding: Binding, call: Call, tile: int) -> Sequence[Binding]:
    """The bindings that compute what `call` does; the last one gives the same value."""
    x, weight, bias = call.args
    assert x is not None and weight is not None
    old, builder = binding.outputs[0], Builder()
    builder.origin = binding.origin
    for value in (x, bias):
        if value is not None:
            builder.own(value)
    factors = builder.constant(_factors(weight, tile), name=weight.name)
    tiles = builder.emit("winograd_tiles", x, pads=call.attrs["pads"] or (0,) * 4, tile=tile)
    rows = builder.emit("reshape", tiles, shape=[factors.shape[0], -1, factors.shape[1]])
    product = builder.emit("matmul", rows, factors)
    shape = [*tiles.shape[:5], old.shape[1], old.shape[-1]]
    results = builder.emit("reshape", product, shape=shape)
    _, _, height, width, _ = old.shape
    builder.output(builder.emit("winograd_image", results, bias, height=height, width=width))
    *rest, last = builder.function().body
    return [*rest, Binding((old,), last.expr, last.origin)]


def _factors(weight: Value, tile: int) -> Array:
    """The transformed weights, a matrix for each plane."""
    packed = weight.constant
    assert packed is not None
    made = winograd_weights(unblocked_array(unblocked_array(packed, 0), 1), tile)
    return made.reshape(-1, *made.shape[2:])
