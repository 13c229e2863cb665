"""What is known about variables at some point of a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from tilewright.arith.interval import Interval, is_index
from tilewright.arith.linear import Linear, factors, number
from tilewright.arith.linearize import linear
from tilewright.ir import (
    TRUE,
    Binary,
    Call,
    Const,
    Expr,
    Function,
    Load,
    Unary,
    Var,
    as_expr,
    const,
    walk_expr,
)


class Bounds(NamedTuple):
    """Symbolic bounds of a variable, inclusive, in terms of variables known before it."""

    low: Expr | None
    high: Expr | None
    #: Variables added later have higher positions: their bounds may use earlier ones.
    position: int


class Ranges:
    """An immutable context: ranges of variables, and conditions that hold.

    A variable in 0 … n - 1 has a value, so that n is known to be positive too.
    Equal questions are frequent: answers are kept for as long as the context lives.
    """

    __slots__ = (
        "__weakref__",
        "answers",
        "conditions",
        "facts",
        "intervals",
        "limits",
        "links",
        "multiples",
        "news",
        "simplified",
        "source",
        "variables",
    )

    #: Variables with symbolic or constant bounds.
    variables: dict[Var, Bounds]
    #: Constant limits of atoms, from ranges and from conditions on a single atom.
    limits: dict[Expr, Interval]
    #: Sums that are not negative.
    facts: tuple[Linear, ...]
    #: The variables that a bound (by its variable) or a fact relates to each other.
    links: dict[Var | Linear, frozenset[Var]]
    #: Boolean expressions that are true.
    conditions: frozenset[Expr]
    #: Expressions known to be multiples of a constant.
    multiples: dict[Expr, int]
    #: Remembered results of `bounds`.
    intervals: dict[Expr, Interval]
    #: Remembered results of `simplify`.
    simplified: dict[Expr, Expr]
    #: Remembered results of other questions, one table per question.
    answers: dict[str, dict[Any, Any]]
    #: The context that this one was derived from, while that lives, and the variables that more is
    #: known about here. A weak reference, since the source holds the contexts derived from it.
    source: ReferenceType[Ranges] | None
    news: frozenset[Var]

    def __init__(self) -> None:
        self.variables, self.limits, self.multiples = {}, {}, {}
        self.facts, self.conditions = (), frozenset()
        self.links = {}
        self.intervals, self.simplified, self.answers = {}, {}, {}
        self.source, self.news = None, frozenset()

    @staticmethod
    def for_function(function: Function) -> Ranges:
        """What holds throughout a function: no dimension of its buffers is negative, and its first
        parameters are from 1 up to the numbers in its attribute `at_most`."""
        ranges = knowing_nothing()
        for dim in function.dims:
            ranges = ranges.with_bounds(dim, 0, None)
        for k, most in enumerate(function.attrs.get("at_most", ())):
            ranges = ranges.with_bounds(_scalar(function, k), 1, int(most))
        return ranges

    def with_extent(self, var: Var, extent: Expr | int) -> Ranges:
        """0 <= var < extent."""
        extent = _where_positive(as_expr(extent, var.dtype))
        if isinstance(extent, Const):
            return self.with_bounds(var, 0, int(extent.value) - 1)
        about = None if _reads_memory(extent) else extent.variables | {var}
        return self._derived((var, extent), about, lambda: self._with_extent(var, extent))

    def _with_extent(self, var: Var, extent: Expr) -> Ranges:
        high = linear(extent).shifted(-1)
        after = self._with_bounds(var, 0, high.expr())
        if high.is_constant or not is_index(var.dtype):
            return after
        after._learn_not_negative(high)
        return after

    def with_bounds(self, var: Var, low: Expr | int | None, high: Expr | int | None) -> Ranges:
        """low <= var <= high; None for no bound."""
        about = frozenset([var])
        return self._derived((var, low, high), about, lambda: self._with_bounds(var, low, high))

    def _with_bounds(self, var: Var, low: Expr | int | None, high: Expr | int | None) -> Ranges:
        after = self._copy()
        ends = [None if e is None else self._end(e, var) for e in (low, high)]
        after.variables.pop(var, None)
        after.variables[var] = Bounds(*ends, position=_next_position(self))
        after.limits[var] = self._constant_limits(var, *ends)
        after._link(var, [var, *(end for end in ends if end is not None)])
        return after

    def _link(self, by: Var | Linear, parts: Iterable[Expr]) -> None:
        """Remember which variables a bound, or a fact, relates to each other."""
        tied = frozenset[Var]().union(*(part.variables for part in parts))
        self.links.pop(by, None)
        if len(tied) > 1:
            self.links[by] = tied

    def _end(self, end: Expr | int, var: Var) -> Expr:
        return const(end, var.dtype) if isinstance(end, int) else _simplified(end, self)

    def with_value(self, var: Var, value: Expr) -> Ranges:
        """var == value."""
        return self.with_bounds(var, value, value)

    def assuming(self, condition: Expr) -> Ranges:
        """`condition` holds, and each part of it if it is a conjunction."""
        about = None if _reads_memory(condition) else condition.variables
        return self._derived((condition,), about, lambda: self._assuming(condition))

    def _assuming(self, condition: Expr) -> Ranges:
        after = self._copy()
        for part in conjuncts(_simplified(condition, self)):
            after._learn(part)
        after._refresh_limits(self.limits)
        return after

    def limit(self, atom: Expr) -> Interval:
        """The constant bounds that are known for an atom."""
        found = self.limits.get(atom)
        return Interval.of_type(atom.dtype) if found is None else found

    def __repr__(self) -> str:
        spans = [f"{b.low} <= {v.name} <= {b.high}" for v, b in self.variables.items()]
        return f"Ranges({', '.join([*spans, *sorted(map(repr, self.conditions))])})"

    def memo(self, question: str) -> dict[Any, Any]:
        """The table of remembered answers to one kind of question."""
        return self.answers.setdefault(question, {})

    def asked_about(self, variables: frozenset[Var]) -> Ranges:
        """The outermost context with the same knowledge about some variables.

        Answers that are found there hold for all contexts inside it: a loop adds nothing about
        expressions that do not depend on its variable.
        """
        ranges = self
        while ranges.source is not None and ranges.news.isdisjoint(variables):
            source = ranges.source()
            if source is None:
                break
            ranges = source
        return ranges

    def _derived(
        self,
        what: tuple[Any, ...],
        about: frozenset[Var] | None,
        derive: Callable[[], Ranges],
    ) -> Ranges:
        """The context with additional knowledge, shared by all who add the same.

        The knowledge is about some variables; None where it may be about anything.
        """
        known = self.memo("derived")
        found = known.get(what)
        if found is None:
            found = known[what] = derive()
            if about is not None:
                found.source, found.news = ref(self), found._touched_by(about)
            _derived_so_far[0] += 1
        return found

    def _touched_by(self, about: frozenset[Var]) -> frozenset[Var]:
        """All variables about which more may be known, if more is known about some."""
        grown = True
        while grown:
            grown = False
            for link in self.links.values():
                if not (link <= about or link.isdisjoint(about)):
                    about, grown = about | link, True
        return about

    def innermost_first(self) -> list[Var]:
        """The variables with ranges, those added last first."""
        return list(reversed(self.variables))

    def _copy(self) -> Ranges:
        copy = Ranges()
        copy.variables, copy.limits = dict(self.variables), dict(self.limits)
        copy.facts, copy.conditions = self.facts, self.conditions
        copy.links = dict(self.links)
        copy.multiples = dict(self.multiples)
        return copy

    def _refresh_limits(self, before: dict[Expr, Interval]) -> None:
        """A condition on one variable narrows those whose bounds use it."""
        if self.limits == before:
            return
        for var, known in self.variables.items():
            limits = self._constant_limits(var, known.low, known.high)
            self.limits[var] = self.limit(var).intersect(limits)
            self.intervals.clear()

    def _constant_limits(self, var: Var, low: Expr | None, high: Expr | None) -> Interval:
        least = None if low is None else self._limits_of(low).low
        greatest = None if high is None else self._limits_of(high).high
        return Interval.of_type(var.dtype).intersect(Interval(least, greatest))

    def _limits_of(self, end: Expr) -> Interval:
        from tilewright.arith.bounds import bounds  # bounds() asks contexts: they come first

        value = number(end)
        return bounds(end, self) if value is None else Interval(value, value)

    def _learn(self, condition: Expr) -> None:
        self.conditions |= {condition}
        if isinstance(condition, Binary):
            learn = _LEARN.get(condition.op)
            if learn is not None and condition.a.dtype.is_integer:
                learn(self, condition)

    def _learn_not_negative(self, fact: Linear) -> None:
        """fact >= 0"""
        if len(fact.terms) == 1:
            ((atom, coefficient),) = fact.terms.items()
            self._narrow(atom, coefficient, fact.constant)
        if fact.terms:
            self.facts = (*self.facts, fact)
            self._link(fact, fact.terms)
        self.intervals.clear()

    def _narrow(self, atom: Expr, coefficient: int, constant: int) -> None:
        """coefficient * atom + constant >= 0"""
        low, high = None, None
        if coefficient > 0:
            low = -(constant // coefficient)
        else:
            high = constant // -coefficient
        self.limits[atom] = self.limit(atom).intersect(Interval(low, high))
        if low is not None and low > 0:
            self._learn_positive_factors(atom)
            self._learn_dividend(atom, low)

    def _learn_positive_factors(self, atom: Expr) -> None:
        """x*y >= 1 with x, y >= 0 implies x >= 1 and y >= 1."""
        parts = dict.fromkeys(factors(atom))
        if atom not in parts and all(self._is_natural(f) for f in parts):
            for factor in parts:
                self.limits[factor] = self.limit(factor).intersect(Interval(1, None))
                self._learn_dividend(factor, 1)

    def _learn_dividend(self, atom: Expr, low: int) -> None:
        """x // c >= low implies x >= c * low, for c > 0."""
        by = number(atom.b) if isinstance(atom, Binary) and atom.op == "floordiv" else None
        if isinstance(atom, Binary) and by is not None and by > 0:
            x = self._exact(atom.a)
            if x is not None:
                self._learn_not_negative(x.shifted(-by * low))

    def _is_natural(self, atom: Expr) -> bool:
        low = self._limits_of(atom).low
        return low is not None and low >= 0

    def _exact(self, expr: Expr) -> Linear | None:
        """`expr` as a sum that equals it, without wrapping around."""
        from tilewright.arith.bounds import exact_linear

        return None if expr.dtype.is_vector else exact_linear(expr, self)

    def learn_less(self, small: Expr, large: Expr, gap: int) -> None:
        """small + gap <= large"""
        a, b = self._exact(small), self._exact(large)
        if a is not None and b is not None:
            self._learn_not_negative(b.minus(a).shifted(-gap))

    def learn_equal(self, a: Expr, b: Expr) -> None:
        self.learn_less(a, b, 0)
        self.learn_less(b, a, 0)
        if isinstance(a, Binary) and a.op == "floormod" and number(b) == 0:
            by = number(a.b)
            if by:
                self.multiples[a.a] = math.lcm(by, self.multiples.get(a.a, 1))


_LEARN: dict[str, Callable[[Ranges, Binary], None]] = {
    "lt": lambda r, e: r.learn_less(e.a, e.b, 1),
    "le": lambda r, e: r.learn_less(e.a, e.b, 0),
    "gt": lambda r, e: r.learn_less(e.b, e.a, 1),
    "ge": lambda r, e: r.learn_less(e.b, e.a, 0),
    "eq": lambda r, e: r.learn_equal(e.a, e.b),
}


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts that must all hold, in order; none for a condition that is true."""
    pending, found = [condition], list[Expr]()
    while pending:
        part = pending.pop()
        if isinstance(part, Binary) and part.op == "and":
            pending += [part.b, part.a]
        elif isinstance(part, Unary) and isinstance(part.a, Binary) and part.a.op == "or":
            pending += [Unary("not", part.a.b), Unary("not", part.a.a)]
        elif part is not TRUE:
            found.append(part)
    return found


def _scalar(function: Function, number: int) -> Var:
    scalar = function.params[number]
    assert isinstance(scalar, Var)
    return scalar


def _where_positive(extent: Expr) -> Expr:
    """The extent of a loop in its body, where it is not 0: there, max(e, 0) is e."""
    if not isinstance(extent, Binary) or extent.op != "max":
        return extent
    ends = [(extent.a, number(extent.b)), (extent.b, number(extent.a))]
    return next((e for e, least in ends if least is not None and least <= 0), extent)


def _reads_memory(expr: Expr) -> bool:
    """Whether it depends on anything but variables."""
    return any(isinstance(e, Load | Call) for e in walk_expr(expr))


def _next_position(ranges: Ranges) -> int:
    return 1 + max((b.position for b in ranges.variables.values()), default=0)


def _simplified(expr: Expr, ranges: Ranges) -> Expr:
    from tilewright.arith.simplify import simplify  # simplification asks contexts: they come first

    return simplify(expr, ranges)


#: Sizes from which the empty context, from which all others derive, is replaced: its own answers,
#: and contexts derived.
_REMEMBERED, _CONTEXTS = 10_000, 1000
_nothing = [Ranges()]
_derived_so_far = [0]


def knowing_nothing() -> Ranges:
    """A context without knowledge; shared, so its memory is bounded by replacing it."""
    answers = len(_nothing[0].simplified) + len(_nothing[0].intervals)
    if answers > _REMEMBERED or _derived_so_far[0] > _CONTEXTS:
        _nothing[0], _derived_so_far[0] = Ranges(), 0
    return _nothing[0]
