"""Which convolutions are computed by Winograd's algorithm, and in which form: a cost model.

The cost of a form is that of its products, of the transforms of windows and results, and of reading
the weights. `passes.winograd` chooses among the forms that pay; the rules for int8 ask for the
predicted gain before (`least_share`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Final, NamedTuple, TypeAlias

from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import TensorType, known_dim
from tilewright.graph.winograd.transforms import ALONE, PLANES, TAPS, TRANSFORMS, Along
from tilewright.ir import Expr, evaluate, free_vars
from tilewright.target import Target

#: Pixels along the side of an image whose size is known only at run time.
_USUAL: Final = 224
#: Winograd's algorithm is used where its predicted time is at most this share of the direct one's.
_WORTH: Final = 0.85
#: Forms are worth measuring up to this multiple of the least predicted time, and this many.
_TRIED: Final = 1.5
_MOST_TRIED: Final = 4

Axes: TypeAlias = tuple[Along, Along]


class ConvSizes(NamedTuple):
    """The sizes of a convolution."""

    batch: int
    inputs: int
    outputs: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    #: Channels in a block, of the image and of the result.
    blocks: tuple[int, int]
    #: Whether all of these are known.
    are_known: bool

    @property
    def window(self) -> int:
        """Taps of the kernel: each has a matrix of weights."""
        return prod(self.kernel)

    def __str__(self) -> str:
        (high, wide), (down, across) = self.kernel, self.strides
        steps = "" if down == across == 1 else f" by steps of {down}×{across}"
        size = f"{self.inputs} to {self.outputs} channels of {self.height}×{self.width}"
        return f"{high}×{wide} convolution of {size}{steps}"

    def tiles(self, axes: Axes) -> int:
        down, across = axes
        return self.batch * -(-self.height // down.tile) * -(-self.width // across.tile)


class WinogradForm(NamedTuple):
    """How a convolution is computed, as a sum of terms of two axes each: with weights transformed
    beforehand (`stored`) or where they are used; the whole image at once, or by strips."""

    terms: tuple[Axes, ...]
    stored: bool
    strips: bool = False

    @property
    def axes(self) -> Axes:
        """The axes of the only term."""
        (axes,) = self.terms
        return axes

    @property
    def matrices(self) -> int:
        """Matrices of weights that are stored."""
        if self.stored:
            return sum(planes_of(axes) * groups_of(axes) for axes in self.terms)
        return prod(a.kernel for a in self.axes)

    def __str__(self) -> str:
        down, across = max(self.terms, key=planes_of)
        phases = f"in {len(self.terms)} phases" if len(self.terms) > 1 else ""
        way = "by strips" if self.strips else "" if self.stored else "weights transformed as used"
        tiles = f"{down.tile}×{across.tile} tiles of {down.taps}×{across.taps}"
        return ", ".join(filter(None, (tiles, phases, way)))


def planes_of(axes: Axes) -> int:
    """Products for each tile and group."""
    return prod(a.planes for a in axes)


def groups_of(axes: Axes) -> int:
    return prod(a.groups for a in axes)


def sizes_of(call: Call, out: TensorType) -> ConvSizes | None:
    """The sizes of a convolution of images, with blocked channels or plain; None where Winograd's
    algorithm does not apply."""
    x, weight, _ = call.args
    assert x is not None and weight is not None
    if not _qualifies(call, x, weight):
        return None
    shape, own, factors = ([_likely(d) for d in t.shape] for t in (out, x, weight))
    inner, block = (own[4], shape[4]) if _is_blocked(call) else (1, 1)
    return ConvSizes(
        # A batch of unknown size counts as one image.
        batch=known_dim(x.shape[0]) or 1,
        inputs=own[1] * inner,
        outputs=shape[1] * block,
        height=shape[2],
        width=shape[3],
        kernel=(factors[2], factors[3]),
        strides=tuple(call.attrs["strides"]) or (1, 1),
        blocks=(inner, block),
        are_known=all(known_dim(d) is not None for d in x.shape),
    )


def _qualifies(call: Call, x: Value, weight: Value) -> bool:
    """Whether Winograd's algorithm applies."""
    is_image = weight.ndim == (6 if _is_blocked(call) else 4) and x.dtype.name == "float32"
    plain = call.attrs["groups"] == 1 and all(d == 1 for d in call.attrs["dilations"])
    known = all(isinstance(p, int) for p in call.attrs["pads"])
    channels = (x.shape[1], x.shape[-1]) if _is_blocked(call) else (x.shape[1],)
    known = known and all(known_dim(d) is not None for d in channels)
    return is_image and plain and known and weight.is_constant


def _is_blocked(call: Call) -> bool:
    return call.op.name == "conv_blocked"


def _likely(dim: Expr) -> int:
    """A size; one that is known only at run time is computed for an image of the usual size."""
    return max(1, int(evaluate(dim, dict.fromkeys(free_vars(dim), _USUAL))))


def form_costs(sizes: ConvSizes, target: Target) -> dict[WinogradForm, float]:
    """The forms that a convolution can have, with the cycles that each takes."""
    return {form: _cost(sizes, form, target) for form in _forms(sizes, target)}


def paying(costs: Mapping[WinogradForm, float], direct: float) -> dict[WinogradForm, float]:
    """The forms that pay, compared to the cycles of direct convolution."""
    return {form: cost for form, cost in costs.items() if cost <= _WORTH * direct}


def worth_measuring(
    costs: Mapping[WinogradForm, float], sizes: ConvSizes, target: Target
) -> list[WinogradForm]:
    """The forms that may turn out to be the fastest, best predictions first: 3×3 windows both
    by strips and not, whatever is predicted."""
    most = _TRIED * min([direct_cost(sizes, target), *costs.values()])
    ranked = sorted((f for f, cost in costs.items() if cost <= most), key=lambda f: costs[f])
    found = [other for form in ranked for other in (form, *_with_other_strips(form, sizes))]
    return found[:_MOST_TRIED]


def _with_other_strips(form: WinogradForm, sizes: ConvSizes) -> Iterator[WinogradForm]:
    is_square = len(form.terms) == 1 and _is_square(form.axes)
    if form.stored and is_square and sizes.are_known:
        yield form._replace(strips=not form.strips)


def least_share(call: Call, out: TensorType, target: Target) -> float:
    """The predicted time of the fastest form, as a share of that of direct convolution."""
    sizes = sizes_of(call, out)
    if sizes is None:
        return 1.0
    direct = direct_cost(sizes, target)
    return min(paying(form_costs(sizes, target), direct).values(), default=direct) / direct


# ---- forms --------------------------------------------------------------------------------------


def _forms(sizes: ConvSizes, target: Target) -> Iterator[WinogradForm]:
    """The forms that a convolution can have."""
    options = [list(_ways(k, s)) for k, s in zip(sizes.kernel, sizes.strides, strict=True)]
    for down, across in product(*options):
        terms = tuple(product(down, across))
        if not all(map(_is_exact, terms)) or all(planes_of(axes) == 1 for axes in terms):
            continue
        is_square = len(terms) == 1 and _is_square(terms[0])
        yield WinogradForm(
            terms, stored=True, strips=is_square and _is_large(sizes, terms[0], target)
        )
        if is_square and sizes.are_known and _sums_are_near(sizes, terms[0], target):
            yield WinogradForm(terms, stored=False)


def _ways(kernel: int, step: int) -> Iterator[tuple[Along, ...]]:
    """The ways to compute a window along an axis: all its phases, for some number of planes."""
    if kernel == 1 and step == 1:
        yield (Along(1, 1, 1, 1),)
    counts = {-(-kernel // n) for n in range(1, kernel)} if step == 1 else {-(-kernel // step)}
    for most, planes in product(sorted(counts), PLANES):
        phases = [-(-(kernel - k) // step) for k in range(min(step, kernel))]
        if 1 < most < planes:
            ways = ((min(most, n), k) for k, n in enumerate(phases))
            yield tuple(Along(kernel, step, *_taps_and_tile(n, planes), k) for n, k in ways)


def _taps_and_tile(taps: int, planes: int) -> tuple[int, int]:
    return (taps, planes - taps + 1) if taps > 1 else (1, 1)


def _is_exact(axes: Axes) -> bool:
    """Whether rounding errors of this term stay small."""
    planes = [a.planes for a in axes]
    return max(planes) < ALONE or min(planes) == 1


def _is_square(axes: Axes) -> bool:
    """Whether it is a 3×3 window of stride 1, for which single kernels exist."""
    return axes[0] == axes[1] and axes[0][:3] == (TAPS, 1, TAPS) and axes[0].tile in TRANSFORMS


def _sums_are_near(sizes: ConvSizes, axes: Axes, target: Target) -> bool:
    """Whether the sums that every block of input channels is added to stay in L2."""
    size = planes_of(axes) * sizes.tiles(axes) * sizes.blocks[1] * 4
    return size <= target.caches.l2 // 2


def _is_large(sizes: ConvSizes, axes: Axes, target: Target) -> bool:
    """Whether an image is better computed by strips: transformed windows and products do not fit
    the caches, but the weights do; or everything would come from memory."""
    planes, l2 = planes_of(axes), target.caches.l2
    moved = 4 * planes * sizes.tiles(axes) // sizes.batch * (sizes.inputs + sizes.outputs)
    weights = 4 * planes * sizes.inputs * sizes.outputs
    is_long = moved > 2 * l2 and weights <= l2
    return sizes.are_known and (is_long or moved > _far(target))


def _far(target: Target) -> int:
    """Bytes from which on values between kernels come from memory."""
    return max(target.caches.l3 // 2, target.timing.near_without_l3 * target.caches.l2)


# ---- costs --------------------------------------------------------------------------------------


def direct_cost(sizes: ConvSizes, target: Target) -> float:
    """Cycles of direct convolution."""
    pixels = sizes.batch * sizes.height * sizes.width
    return _cycles(pixels, sizes, sizes.window, sizes.window, target.timing.conv.blocked, target)


def _cost(sizes: ConvSizes, form: WinogradForm, target: Target) -> float:
    """Cycles for products and transforms."""
    timing = target.timing.conv
    terms = sum(_term_cost(sizes, axes, form, target) for axes in form.terms)
    if form.stored:
        return terms + timing.transform_calls * len(form.terms)
    tiles, lanes = sizes.tiles(form.axes), target.lanes("float32")
    factors = timing.transform_weights * sizes.inputs * sizes.outputs
    sums = timing.add_partial_sums * tiles * sizes.outputs * sizes.inputs / sizes.blocks[0]
    return terms + planes_of(form.axes) * (factors + sums) / lanes


def _term_cost(sizes: ConvSizes, axes: Axes, form: WinogradForm, target: Target) -> float:
    timing, tiles = target.timing.conv, sizes.tiles(axes)
    planes, groups = planes_of(axes), groups_of(axes)
    moved = planes * tiles * (sizes.inputs * groups + sizes.outputs)
    points = sum(a.planes for a in axes if a.planes > 1)
    steps = timing.transform_move + timing.transform_point * points
    transforms = steps * moved / target.lanes("float32")
    if not form.strips and 4 * moved > _far(target):
        # Each value is written to memory and read again.
        transforms = max(transforms, 2 * 4 * moved / target.timing.weight_bytes_per_cycle)
    matrices = planes * groups if form.stored else form.matrices
    share = timing.winograd_products
    return transforms + _cycles(tiles, sizes, planes * groups, matrices, share, target)


def _cycles(
    rows: int, sizes: ConvSizes, planes: int, matrices: int, share: float, target: Target
) -> float:
    """Cycles to multiply this many rows by the weights of each plane, which are read meanwhile."""
    size = sizes.inputs * sizes.outputs
    products = rows * planes * size / (target.lanes("float32") * target.fma_ports * share)
    is_near = 4 * matrices * size <= target.caches.l2
    reading = 4 * matrices * size / target.timing.weight_bytes_per_cycle
    return products if is_near else max(products, reading)
