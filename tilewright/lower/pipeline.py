"""The passes of lowering, in order."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import simplify_function
from tilewright.ir import Function
from tilewright.lower.blocks import lower_blocks, lower_opaque_blocks
from tilewright.lower.bounds import check_bounds
from tilewright.lower.compact import compact_buffers
from tilewright.lower.flatten import flatten
from tilewright.lower.guards import hoist_guards
from tilewright.lower.init import place_init
from tilewright.lower.lanes import group_lanes
from tilewright.lower.math import Arithmetic, expand_math
from tilewright.lower.narrow import legalize_types
from tilewright.lower.overcompute import overcompute
from tilewright.lower.prefetch import place_prefetches
from tilewright.lower.rounding import expand_rounding
from tilewright.lower.tighten import tighten_loops
from tilewright.lower.tiles import place_tiles
from tilewright.lower.unroll import unroll
from tilewright.lower.vectorize import vectorize
from tilewright.support.denormals import Denormals
from tilewright.target import Target

Pass = Callable[[Function], Function]


def passes(
    target: Target, *, checked: bool, denormals: Denormals = "flush"
) -> list[tuple[str, Pass]]:
    """The passes by name; what each needs of the ones before is said beside it."""
    arithmetic = Arithmetic.of(target, denormals)
    return [
        ("place_init", place_init),
        # Drops predicates, which are the blocks' own.
        ("overcompute", overcompute),
        ("lower_blocks", lower_blocks),
        ("simplify", simplify_function),
        # Sizes buffers by what whole loops touch, before these are shortened.
        ("compact_buffers", compact_buffers),
        ("lower_opaque_blocks", lower_opaque_blocks),
        ("tighten_loops", tighten_loops),
        # Bounds are proved on whole indices and with all loops still there.
        ("check_bounds", lambda f: check_bounds(f, checked=checked)),
        ("hoist_guards", hoist_guards),
        # Mathematics on small formats is float32's from here on.
        ("legalize_types", lambda f: legalize_types(f, target)),
        # Makes indices that fuse dimensions plain again, for vectors to be seen as contiguous.
        ("flatten", flatten),
        ("expand_math", lambda f: expand_math(f, arithmetic)),
        ("expand_rounding", lambda f: expand_rounding(f, target)),
        ("vectorize", vectorize),
        ("unroll", unroll),
        ("simplify_flat", simplify_function),
        # Needs the positions of tiles as numbers.
        ("place_tiles", place_tiles),
        # Looks at single positions, which flattening makes.
        ("group_lanes", lambda f: group_lanes(f, target)),
        # Asks where loads lie in the end.
        ("place_prefetches", lambda f: place_prefetches(f, target)),
    ]


def lower(
    function: Function,
    target: Target,
    *,
    checked: bool = False,
    denormals: Denormals = "flush",
    after: Callable[[str, Function], None] | None = None,
) -> Function:
    """`function` ready for code generation; `after` sees the result of every pass."""
    for name, run in passes(target, checked=checked, denormals=denormals):
        function = run(function)
        if after is not None:
            after(name, function)
    return function
