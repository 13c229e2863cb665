"""The steps from a loop function to code: schedule, split constants, lower, generate.

`tw.build`, models, `inspect`, benchmarks and tests all use these. Differences between targets are
the back end's (`codegen.Backend`: its passes, its generator), differences between callers are in
`Options`, which are part of the cache's keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from tilewright.ir import Alloc, Block, Const, For, Function, Iter, While, walk
from tilewright.support.denormals import Denormals
from tilewright.support.dtype import index
from tilewright.support.errors import UserError
from tilewright.target import Target, verify_for

if TYPE_CHECKING:
    from tilewright.codegen import Code
    from tilewright.lower import Prepared

#: Functions with at most this many block instances keep their loops unscheduled.
_TINY: Final = 1024
#: Weight of an instance of a reduction in that count: LLVM does not vectorize reductions as they
#: are written.
_REDUCED: Final = 8

#: The passes that merge launches of a GPU, and overlap them.
_MERGING: Final = ("merge_launches", "overlap_launches")
#: The rule-based scheduler with default choices.
DEFAULT_SCHEDULER: Final = "rules {}"
#: Called with the name and the result of each lowering pass.
After = Callable[[str, Function], None]


@dataclass(frozen=True)
class Options:
    """What affects the code of a kernel besides its loops and its target."""

    #: Add a bounds check to every access.
    checked: bool = False
    denormals: Denormals = "flush"
    #: The key of the scheduler (`schedule.scheduler_of`).
    scheduler: str = DEFAULT_SCHEDULER
    #: Compile the packing of constants for the target even where its code cannot run here: kernels
    #: that are measured on another machine carry all of their code.
    prepares_there: bool = False
    #: Merge the launches of a GPU (`lower.gpu.merge_launches`), and overlap them.
    merges: bool = True


class Stages(NamedTuple):
    """The stages of a function: as scheduled, split from its work on constants, and as code."""

    scheduled: Function
    split: Prepared | None
    code: Code


DEFAULTS: Final = Options()


def stages_of(function: Function, target: Target, options: Options = DEFAULTS) -> Stages:
    """All steps for a kernel of a model, with the work on constants split off."""
    made = scheduled(function, target, options)
    split = split_of(made, target)
    return Stages(made, split, generated(split.function if split else made, target, options))


def scheduled(function: Function, target: Target, options: Options = DEFAULTS) -> Function:
    """The function under its schedule, legal for the target."""
    from tilewright.schedule import function_of, require_features, scheduler_of

    _require_sizes(function)
    # On a GPU, unscheduled loops have no launches.
    can_be_left = target.kind.device == "cpu" and options.scheduler == DEFAULT_SCHEDULER
    is_left = can_be_left and _is_tiny(function)
    scheduler = scheduler_of("given" if is_left else options.scheduler)
    made = function_of(scheduler.schedule(function, target))
    verify_for(made, target)
    require_features(made, target)
    return made


def split_of(made: Function, target: Target) -> Prepared | None:
    """A scheduled function split from its work on constants; None where there is none."""
    from tilewright.lower import split_constant_work

    # Not implemented for GPU kernels.
    return split_constant_work(made) if target.kind.device == "cpu" else None


def lowered(
    function: Function, target: Target, options: Options = DEFAULTS, after: After | None = None
) -> Function:
    """A scheduled function after the lowering passes of the target's back end."""
    from tilewright.codegen import backend_of
    from tilewright.lower import lower

    passes = backend_of(target).passes(target, checked=options.checked, denormals=options.denormals)
    if not options.merges:
        passes = [step for step in passes if step[0] not in _MERGING]
    return lower(function, passes, after)


def generated(
    function: Function, target: Target, options: Options = DEFAULTS, after: After | None = None
) -> Code:
    """The code of a scheduled function."""
    from tilewright.codegen import backend_of

    flat = lowered(function, target, options, after)
    return backend_of(target).generate(flat, target, denormals=options.denormals)


def host_code(
    program: Function, target: Target, denormals: Denormals, *, profiled: bool = False
) -> Code:
    """The code of a lowered host program, which has no blocks to schedule."""
    from tilewright.codegen import backend_of

    return backend_of(target).generate(program, target, denormals=denormals, profiled=profiled)


def _require_sizes(function: Function) -> None:
    """Refuse tensors with more elements than an index can count, which rules and passes assume."""
    inner = [b for s in walk(function.body) if isinstance(s, Alloc) for b in s.buffers]
    for buffer in (*function.buffers, *inner):
        size = buffer.static_size()
        if size is not None and size > index.max_value:
            raise UserError(
                f"{buffer.name} would have {size} elements",
                reason="no memory has so many",
                remedy="check the sizes that the model computes with",
            )


def _is_tiny(function: Function) -> bool:
    """Whether all loops together have too few iterations for a schedule to matter."""
    instances = 0
    for stmt in walk(function.body):
        if isinstance(stmt, While) or (
            isinstance(stmt, For) and not isinstance(stmt.extent, Const)
        ):
            return False
        if isinstance(stmt, Block):
            each = _REDUCED if any(it.kind == "reduce" for it in stmt.iters) else 1
            instances += each * prod(_extent(it) for it in stmt.iters)
    return instances <= _TINY


def _extent(it: Iter) -> int:
    return int(it.extent.value) if isinstance(it.extent, Const) else _TINY + 1
