"""Templates: user-written schedules with choices, for one kernel.

@tw.tune.template
def tiled(s, space):
    i, j, k = s.loops("C")
    io, ii = space.split("rows", i)
    jo, ji = space.split("columns", j)
    s.reorder(io, jo, k, ii, ji)
    space.annotate("inner", ji, ("vectorize", "none"))

tiled.tune(f, budget="1m", records="matmul.jsonl")
m = tw.build(tiled.best(f, "matmul.jsonl"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.codegen import numbers_of
from tilewright.ir import Function
from tilewright.kernels.build import as_permitted
from tilewright.kernels.compiled import loops_key
from tilewright.kernels.cost import cost_of
from tilewright.kernels.pipeline import Options
from tilewright.schedule import Recorded, Schedule, Trace
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath
from tilewright.target import Target
from tilewright.tune.records.best import best_records
from tilewright.tune.records.file import read_records
from tilewright.tune.search import search
from tilewright.tune.settings import Settings, seconds_of
from tilewright.tune.spaces.knobs import Knobs
from tilewright.tune.spaces.sketches import sketches
from tilewright.tune.spaces.space import Program, Space
from tilewright.tune.tasks import Task

if TYPE_CHECKING:
    from tilewright.tune.measuring.measurer import Measurer
    from tilewright.tune.summary import Summary


@dataclass(frozen=True)
class Template:
    """A schedule with choices, which can be tuned."""

    name: str
    program: Program

    def space(self, function: Function) -> Space:
        """All schedules that the template makes of a function."""
        return Space(function, self.program)

    def default(self, function: Function) -> Schedule:
        """The schedule with the first candidate of every choice."""
        return self.space(function).default.schedule

    def tune(
        self,
        function: Function,
        target: Target | str = "llvm",
        *,
        budget: str | float = "2m",
        records: AnyPath = "tuning.jsonl",
        tuner: str | None = None,
        trials: int | None = None,
        sizes: Mapping[str, int] | None = None,
        transfer: Sequence[AnyPath] = (),
        threads: int | None = None,
        seed: int = 0,
        progress: bool | None = None,
        measurer: Measurer | None = None,
    ) -> Summary:
        """Search for the fastest schedule of a function, against the template's default.

        `sizes` are the values of symbolic dimensions and scalars; the rest is as for `tw.tune`.
        """
        settings = Settings(
            seconds_of(budget), records, tuner, trials, transfer, seed, progress, measurer
        )
        space = self.space(function)
        options = Options(scheduler=Recorded(space.default.trace).key)
        numbers = _numbers(function, sizes or {})
        cost = cost_of(function, numbers)
        task = Task(
            function,
            as_permitted(Target.of(target)),
            numbers,
            flops=cost.flops,
            bytes=cost.bytes,
            options=options,
            threads=threads,
        )
        return search([task], lambda _: space, settings, self._space_name)

    def best(
        self,
        function: Function,
        records: AnyPath | Sequence[AnyPath] = "tuning.jsonl",
        target: Target | str = "llvm",
    ) -> Schedule:
        """The fastest schedule of a function in records; the template's default if none has won."""
        known = [r for r in read_records(records) if r.space == self._space_name]
        winners = best_records(known).get(as_permitted(Target.of(target)).machine, {})
        winner = winners.get(loops_key(function))
        if winner is None or winner.trace is None:
            return self.default(function)
        return Trace.from_json(dict(winner.trace)).replay(function)

    @property
    def _space_name(self) -> str:
        return f"template {self.name}"


def template(edit: Callable[[Schedule, Knobs], Any]) -> Template:
    """Make a template of a function that edits a schedule and asks for its choices."""
    name = getattr(edit, "__name__", "template")
    return Template(name, lambda s, choices: edit(s, Knobs(s, choices)))


def automatic(target: Target | str = "llvm") -> Template:
    """The automatic template: sketches for any function, on a CPU.

    found = tw.tune.automatic()
    found.tune(f, budget="2m", records="f.jsonl")
    m = tw.build(found.best(f, "f.jsonl"))
    """
    return Template("sketches", sketches(as_permitted(Target.of(target))))


def _numbers(function: Function, sizes: Mapping[str, int]) -> tuple[int, ...]:
    names = [v.name for v in numbers_of(function)]
    missing = [n for n in names if n not in sizes]
    if missing:
        raise UserError(
            f"{function.name} cannot be measured",
            reason=f"nothing says how large {', '.join(missing)} is",
            remedy="pass sizes={NAME: number}",
        )
    return tuple(int(sizes[n]) for n in names)
