"""Made-up inputs for models: usual sizes, and random elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.support.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from tilewright.runtime import Spec

    Array = np.ndarray[Any, Any]

#: Default sizes of symbolic dimensions: the first dimension of an input, and others.
_BATCH: Final = 1
_LENGTH: Final = 16


def made_up(
    specs: Sequence[Spec], dims: Mapping[str, int], fill: str, seed: int
) -> dict[str, Array]:
    """Arrays for inputs with these sizes of symbolic dimensions."""
    import numpy as np

    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for spec in specs:
        shape: Any = getattr(spec, "shape", None)
        if shape is None:
            raise UserError(
                f"input {spec.name} cannot be made up",
                reason=str(spec),
                remedy="pass it with --inputs, or fix the model's shapes with --shapes",
            )
        made[spec.name] = _filled(spec, dict(dims), fill, rng)
    return made


def usual_sizes(specs: Sequence[Spec]) -> dict[str, int]:
    """Default sizes of symbolic dimensions."""
    sizes: dict[str, int] = {}
    for spec in specs:
        shape: Any = getattr(spec, "shape", ())
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                sizes.setdefault(dim, _LENGTH if axis else _BATCH)
    return sizes


def _filled(spec: Any, sizes: dict[str, int], fill: str, rng: Any) -> Array:
    import numpy as np

    shape = spec.sizes(sizes)
    if fill != "random":
        return np.full(shape, 0 if fill == "zeros" else 1).astype(spec.numpy)
    # Integers are often indices or masks: 0 and 1 are in range for both.
    if spec.dtype.is_float:
        return rng.standard_normal(shape).astype(spec.numpy)
    return rng.integers(0, 2, shape).astype(spec.numpy)
