"""The passes that every back end begins with, and how its passes are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.arith import simplify_function
from tilewright.ir import Function
from tilewright.lower.blocks import lower_blocks, lower_opaque_blocks
from tilewright.lower.bounds import check_bounds
from tilewright.lower.compact import compact_buffers
from tilewright.lower.flatten import flatten
from tilewright.lower.guards import hoist_guards
from tilewright.lower.init import place_init
from tilewright.lower.narrow import legalize_types
from tilewright.lower.overcompute import overcompute
from tilewright.lower.tighten import tighten_loops

Pass = Callable[[Function], Function]
NamedPass = tuple[str, Pass]


def flat_loop_passes(*, checked: bool, formats: frozenset[str] = frozenset()) -> list[NamedPass]:
    """The passes from blocks to flat loops, with which every back end begins.

    `checked` adds a bounds check to every access. `formats` are the small number formats that the
    target converts natively. Comments say what a pass needs from earlier ones.
    """
    return [
        ("place_init", place_init),
        # Drops predicates, which belong to blocks.
        ("overcompute", overcompute),
        ("lower_blocks", lower_blocks),
        ("simplify", simplify_function),
        # Sizes buffers by what whole loops access, before these are shortened.
        ("compact_buffers", compact_buffers),
        ("lower_opaque_blocks", lower_opaque_blocks),
        ("tighten_loops", tighten_loops),
        # Bounds are proved on whole indices and with all loops intact.
        ("check_bounds", lambda f: check_bounds(f, checked=checked)),
        ("hoist_guards", hoist_guards),
        # Mathematics on small formats is float32's from here on.
        ("legalize_types", lambda f: legalize_types(f, formats)),
        # Simplifies indices that fuse dimensions, so that vectors are recognised as contiguous.
        ("flatten", flatten),
    ]


def lower(
    function: Function,
    passes: Sequence[NamedPass],
    after: Callable[[str, Function], None] | None = None,
) -> Function:
    """`function` after all passes of a back end; `after` gets the result of each."""
    for name, run in passes:
        function = run(function)
        if after is not None:
            after(name, function)
    return function
