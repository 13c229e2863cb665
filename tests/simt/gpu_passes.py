"""Scheduled functions on their way to a kernel, as back ends for GPUs lower them."""

from __future__ import annotations

from tilewright.arith import simplify_function
from tilewright.ir import Function
from tilewright.lower import (
    drop_thread_dimensions,
    flat_loop_passes,
    lower,
    place_barriers,
    unroll,
    vectorize,
)


def lowered(function: Function, *, checked: bool = False) -> Function:
    """Flat loops with barriers between phases; mathematics stays calls."""
    flat = flat_loop_passes(checked=checked)
    at = [name for name, _ in flat].index("flatten")
    return lower(
        function,
        [
            *flat[:at],
            ("drop_thread_dimensions", drop_thread_dimensions),
            *flat[at:],
            ("vectorize", vectorize),
            ("unroll", unroll),
            ("simplify_flat", simplify_function),
            ("place_barriers", place_barriers),
        ],
    )
