"""How passes are run: the level, passes that are disabled, instruments.

    with PassContext(opt_level=3, disabled_passes={"fold_scale"}, instruments=[PassTimer()]):
        …

A pass is a plain function `Module -> Module`, named after itself; `run_passes` takes a table of
them with the level at which each starts. The innermost context that is open is the current one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Final, Literal, NamedTuple, Protocol, TextIO

from tilewright.graph.ir import Module
from tilewright.graph.rewriting.decisions import Decision, DecisionTable
from tilewright.support.denormals import Denormals, denormals_of
from tilewright.support.errors import TilewrightError, UserError, nearest
from tilewright.support.faults import during
from tilewright.target import Target

Pass = Callable[[Module], Module]
MAX_LEVEL: Final = 3
#: Types of factors in products; everything else, and inputs and outputs, keep their types.
PRECISIONS: Final = ("float32", "tf32", "float16", "bf16", "float8", "int8-dynamic")
#: Lets products of float32 on GPUs use only ten bits of the fractions of their factors.
TF32: Final = "tf32"
#: A pass that is not over graphs; see `PassContext.merges_kernels`.
MERGE_KERNELS: Final = "merge_kernels"


class Step(NamedTuple):
    """A pass and the least `opt_level` at which it runs."""

    run: Pass
    level: int = 0
    #: The device that it is for; empty where it is for all.
    device: str = ""

    @property
    def name(self) -> str:
        return self.run.__name__


class Instrument(Protocol):
    """Watches passes; both are called for every pass that runs."""

    def before(self, name: str, module: Module) -> None: ...

    def after(self, name: str, module: Module) -> None: ...


@dataclass
class PassContext:
    """Settings for the passes that run while it is open."""

    #: 0: every operator by itself; 1: simplified and fused; 2: whole-graph choices; 3: also what
    #: trades a few units in the last places for speed (Winograd).
    opt_level: int = MAX_LEVEL
    disabled_passes: Collection[str] = ()
    #: tf32: products of float32 take ten bits of the fractions of their factors, on GPUs since
    #: sm_80;
    #: float16, bf16: products of such factors, summed in float32, where the machine is faster at
    #: that; on GPUs, values between kernels are stored so as well;
    #: float8: products by constant weights in floats of eight bits, on GPUs since sm_89;
    #: int8-dynamic: products by constant weights in bytes, with scales found at run time, as
    #: those of float8 are.
    precision: str = "float32"
    #: flush: numbers below the least normal one are zeros, which is faster; keep: as IEEE 754 says.
    denormals: Denormals = "flush"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instruments: Sequence[Instrument] = ()
    #: Schedulers that kernels get in place of the default, by `Target.machine` and then by the key
    #: of their loops; unless given, those of the enclosing context.
    schedulers: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _outer_schedulers())
    #: What passes choose in place of their own choices, by `Target.machine` and then by the key of
    #: the decision; unless given, those of the enclosing context.
    decisions: DecisionTable = field(default_factory=lambda: _outer_decisions())
    #: What passes have decided in this context, by keys.
    decided: dict[str, Decision] = field(
        default_factory=dict[str, Decision], init=False, repr=False
    )
    #: What one pass has found out and others reuse, by topic: see `FactTable`.
    remembered: dict[str, dict[Any, Any]] = field(
        default_factory=dict[str, dict[Any, Any]], init=False, repr=False
    )
    _tokens: list[Token[PassContext | None]] = field(
        default_factory=list[Token["PassContext | None"]], repr=False
    )

    def __post_init__(self) -> None:
        if not isinstance(self.opt_level, Integral) or not 0 <= self.opt_level <= MAX_LEVEL:
            raise UserError(
                f"there is no opt_level {self.opt_level!r}", remedy=f"use 0 to {MAX_LEVEL}"
            )
        if str(self.precision) not in PRECISIONS:
            raise UserError(
                f"there is no precision {self.precision}",
                remedy=f"use {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}",
            )

        denormals_of(self.denormals)

    def __enter__(self) -> PassContext:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())

    @staticmethod
    def current() -> PassContext:
        """The innermost open context; the default one where none is open."""
        return _current.get() or PassContext()

    def option(self, name: str, default: Any) -> Any:
        """A setting for a pass."""
        return self.options.get(name, default)

    def decide(self, target: Target, decision: Decision) -> str:
        """The option to take: the first, unless another one is named here."""
        named = self.decisions.get(target.machine, {}).get(decision.key, decision.default)
        is_option = named in decision.options
        taken, refused = (named, "") if is_option else (decision.default, named)
        if decision.others or refused:
            made = replace(decision, taken=taken, refused=refused)
            known = self.decided.get(decision.key)
            self.decided[decision.key] = made if known is None else made.with_calls_of(known)
        return taken

    @property
    def merges_kernels(self) -> bool:
        """Whether passes over loops merge small launches of a GPU into one, and overlap
        launches."""
        return self.opt_level >= 2 and MERGE_KERNELS not in self.disabled_passes

    def runs(self, step: Step) -> bool:
        return step.level <= self.opt_level and step.name not in self.disabled_passes


_current: ContextVar[PassContext | None] = ContextVar("pass_context", default=None)


def _outer_schedulers() -> Mapping[str, Mapping[str, str]]:
    outer = _current.get()
    return {} if outer is None else outer.schedulers


def _outer_decisions() -> DecisionTable:
    outer = _current.get()
    return {} if outer is None else outer.decisions


def run_passes(module: Module, steps: Iterable[Step]) -> Module:
    """Run all passes that the current context enables, in order."""
    context = PassContext.current()
    table = list(steps)
    _require_known(context, table)
    for step in table:
        if context.runs(step):
            module = run_pass(module, step.run)
    return module


def run_pass(module: Module, run: Pass) -> Module:
    """Run one pass, watched by the instruments of the current context."""
    context = PassContext.current()
    for instrument in context.instruments:
        _tell(instrument, "before", run.__name__, module)
    with during("pass", run.__name__, module):
        module = run(module)
    for instrument in reversed(context.instruments):
        _tell(instrument, "after", run.__name__, module)
    return module


def _tell(instrument: Instrument, event: Literal["before", "after"], name: str, m: Module) -> None:
    """Instruments are the user's: what they raise is no fault of the pass, nor of ours."""
    try:
        (instrument.before if event == "before" else instrument.after)(name, m)
    except TilewrightError:
        raise
    except Exception as error:
        raise UserError(
            f"the instrument {type(instrument).__name__} failed {event} the pass {name}",
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _require_known(context: PassContext, steps: Sequence[Step]) -> None:
    names = {*(s.name for s in steps), MERGE_KERNELS}
    for name in context.disabled_passes:
        if name not in names:
            raise UserError(f"there is no pass {name} to disable", remedy=nearest(name, names))


# ---- instruments --------------------------------------------------------------------------------


class PassTimer:
    """How long each pass took; `str` gives a table."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started: list[float] = []

    def before(self, name: str, module: Module) -> None:
        del name, module
        self._started.append(time.perf_counter())

    def after(self, name: str, module: Module) -> None:
        del module
        spent = time.perf_counter() - self._started.pop()
        self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def __str__(self) -> str:
        rows = sorted(self.seconds.items(), key=lambda row: -row[1])
        return "\n".join(f"{1e3 * s:10.2f} ms  {name}" for name, s in rows)


class PassPrinter:
    """Prints the module around passes (all, or those named)."""

    def __init__(
        self,
        passes: Collection[str] | None = None,
        *,
        before: bool = False,
        after: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._passes, self._stream = passes, stream
        self._sides = {"before": before, "after": after}

    def before(self, name: str, module: Module) -> None:
        self._print("before", name, module)

    def after(self, name: str, module: Module) -> None:
        self._print("after", name, module)

    def _print(self, side: str, name: str, module: Module) -> None:
        if self._sides[side] and (self._passes is None or name in self._passes):
            print(f"# {side} {name}\n{module}", file=self._stream or sys.stdout)


class PassVerifier:
    """Verifies the module after every pass, and says which one broke it."""

    def before(self, name: str, module: Module) -> None:
        del name, module

    def after(self, name: str, module: Module) -> None:
        from tilewright.graph.ir.verify import verify
        from tilewright.support.errors import InternalError

        try:
            verify(module)
        except UserError as error:
            raise InternalError(f"the pass {name} broke the module", reason=str(error)) from error
