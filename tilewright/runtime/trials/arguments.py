"""Made-up arguments for a kernel that is called by itself, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.arrays import aligned_empty
from tilewright.runtime.signature import ArrayParam, Dim, ScalarParam, dim_value
from tilewright.runtime.trials.task import TrialTask
from tilewright.support.errors import UserError

Array = np.ndarray[Any, Any]


def made_up_arguments(task: TrialTask) -> list[Any]:
    """Random arrays, and the task's numbers."""
    rng, sizes = np.random.default_rng(0), task.sizes
    return [_argument(p, sizes, rng) for p in task.signature.params]


def _argument(
    param: ArrayParam | ScalarParam, sizes: dict[str, int], rng: np.random.Generator
) -> Any:
    if isinstance(param, ScalarParam):
        return sizes.get(param.name, 0)
    shape = [_extent(d, sizes) for d in param.shape]
    array = aligned_empty(shape, param.dtype.numpy)
    # Integers are often indices: 0 and 1 are in range.
    is_float = param.dtype.is_float
    array[...] = rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)
    return array


def _extent(dim: Dim, sizes: dict[str, int]) -> int:
    value = dim_value(dim, sizes)
    if value is None or value < 0:
        raise UserError("the arguments of a kernel cannot be made up", reason=f"{dim} is no size")
    return value


def copied(arguments: Sequence[Any]) -> list[Any]:
    """The same scalars, and aligned copies of the arrays."""
    return [_copy(a) for a in arguments]


def _copy(argument: Any) -> Any:
    if isinstance(argument, int | float):
        return argument
    array: Array = argument
    made = aligned_empty(array.shape, array.dtype)
    made[...] = array
    return made


def bytes_of(arguments: Sequence[Any]) -> int:
    """The total size of the arrays."""
    return sum(int(np.asarray(a).nbytes) for a in arguments)
