"""Operators, each declared in one place.

    @op
    def softmax(x: Value, *, axis: int = -1) -> Type:
        '''exp(x) / sum(exp(x)) along `axis`.'''
        return x.type

    @softmax.reference
    def softmax_reference(x: Array, *, axis: int) -> Array: ...

    @softmax.compute
    def softmax_compute(x: te.Tensor, *, axis: int) -> te.Tensor: ...

The declared function is the type rule: it gets the operands as `Value`s and returns the type of the
result, or a tuple of types. Its conditions on dimensions (`graph.sizes.agreement`) are checked when
the program runs, where these are symbolic. Its signature declares the rest. Operands are its
positional parameters (`Value`; `Value | None = None` where it may be missing; `*xs: Value` for any
number); attributes are its keyword parameters, of the kinds in `attributes.KINDS`.
`graph/ops/__init__.py` says how to add a family.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from tilewright.graph.ir import Value
from tilewright.graph.ir.attributes import REQUIRED, Attribute, attribute
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.sizes.agreement import Check, left_open
from tilewright.ir import Expr, free_vars
from tilewright.support.errors import InternalError, UserError, nearest
from tilewright.support.narrowing import is_sequence, is_tuple

Rule = TypeVar("Rule", bound=Callable[..., Any])
Arity = Literal["one", "optional", "many"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A parameter of an operator that takes values."""

    name: str
    arity: Arity = "one"


class OpDef:
    """An operator: its signature, type rule, reference, and how it is computed.

    `pure` operators give the same result for the same operands. `host` ones are never compiled;
    `structural` ones have no kernel, but are part of the program that calls kernels; `scalar` ones
    have one, but the calling program computes their few elements from dimensions itself. The
    result of a `view` shares the memory of its operand.
    """

    def __init__(
        self,
        rule: Callable[..., Any],
        *,
        pure: bool = True,
        host: bool = False,
        structural: bool = False,
        view: bool = False,
        scalar: bool = False,
    ) -> None:
        self.name = rule.__name__.rstrip("_")
        self.doc = inspect.getdoc(rule) or ""
        self.pure, self.host, self.structural = pure, host, structural
        self.view, self.scalar = view, scalar
        self.operands, self.attributes = _signature(self.name, rule)
        self._infer = rule
        self._reference: Callable[..., Any] | None = None
        self._compute: Callable[..., Any] | None = None
        self._kernel: Callable[..., Any] | None = None
        self._decompose: Callable[..., Any] | None = None
        self._symbolic: Callable[..., Any] | None = None
        self._layouts: Callable[..., Any] | None = None
        self._cost: Callable[..., Any] | None = None
        self._part: Callable[..., Expr | None] | None = None
        self._item: Callable[..., bool] | None = None
        self._join: Callable[..., bool] | None = None

    # ---- declaring ------------------------------------------------------------------------------

    def reference(self, rule: Rule) -> Rule:
        """`rule(*arrays, **attrs)`: the result by NumPy; the meaning of the operator."""
        self._reference = rule
        return rule

    def compute(self, rule: Rule) -> Rule:
        """`rule(*te tensors, **attrs)`: the result as compute definitions.

        A rule that has the parameter `out` gets the type of the result too (a tuple for several).
        """
        self._compute = rule
        return rule

    def kernel(self, rule: Rule) -> Rule:
        """`rule(*values, **attrs)`: a loop function over the operands, then the results."""
        self._kernel = rule
        return rule

    def decompose(self, rule: Rule) -> Rule:
        """`rule(builder, *values, **attrs)`: the result by other operators."""
        self._decompose = rule
        return rule

    def symbolic(self, rule: Rule) -> Rule:
        """`rule(*values, **attrs)`: the elements of the result that follow from `known` ones."""
        self._symbolic = rule
        return rule

    def layouts(self, rule: Rule) -> Rule:
        """`rule(blocking, call, type of the result)`: the forms it has besides the plain one."""
        self._layouts = rule
        return rule

    def cost(self, rule: Rule) -> Rule:
        """`rule(blocking, call, type of the result)`: the cost of the plain form."""
        self._cost = rule
        return rule

    def part(self, rule: Rule) -> Rule:
        """`rule(result, *values, **attrs)`: the element of the first operand at which the result
        begins, if it is a contiguous part of that, and need not be copied; else None."""
        self._part = rule
        return rule

    def item(self, rule: Rule) -> Rule:
        """`rule(*values)`: whether the result is an item of the list that is the first operand."""
        self._item = rule
        return rule

    def join(self, rule: Rule) -> Rule:
        """`rule(result, *values, **attrs)`: whether the operands are stored one after the other in
        the result, so that they can be computed there."""
        self._join = rule
        return rule

    # ---- using ----------------------------------------------------------------------------------

    @property
    def how(self) -> str:
        """`compute`, `kernel`, `decompose`, `host` or `structural`; nothing where it is unknown."""
        ways = {
            "compute": self._compute,
            "kernel": self._kernel,
            "decompose": self._decompose,
            "host": self.host,
            "structural": self.structural,
        }
        return next((way for way, is_given in ways.items() if is_given), "")

    def infer(self, args: Sequence[Value | None], attrs: dict[str, Any]) -> tuple[Type, ...]:
        """The types of the results."""
        return _tuple(self._infer(*args, **attrs))

    def evaluate(self, args: Sequence[Any], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """The results by the NumPy reference."""
        return _tuple(self._rule("reference")(*args, **attrs))

    def define(
        self, args: Sequence[Any], attrs: dict[str, Any], out: tuple[Type, ...]
    ) -> tuple[Any, ...]:
        """The results as tensors of `te`."""
        rule = self._rule("compute")
        if "out" in inspect.signature(rule).parameters:
            attrs = attrs | {"out": out[0] if len(out) == 1 else out}
        return _tuple(rule(*args, **attrs))

    def loops(self, args: Sequence[Value | None], attrs: dict[str, Any]) -> Any:
        """The loop function of a kernel."""
        return self._rule("kernel")(*args, **attrs)

    def expand(
        self, builder: Any, args: Sequence[Value | None], attrs: dict[str, Any]
    ) -> tuple[Value, ...]:
        """The results by other operators, emitted into `builder`."""
        return _tuple(self._rule("decompose")(builder, *args, **attrs))

    def propagate(self, args: Sequence[Value | None], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """The known elements of each result; nothing where there is no rule."""
        if self._symbolic is None:
            return ()
        found = self._symbolic(*args, **attrs)
        return () if found is None else _tuple(found)

    def conditions(self, args: Sequence[Value | None], attrs: dict[str, Any]) -> list[Check]:
        """Conditions to check at run time: those that its type rule leaves open for symbols."""
        if not any(map(_is_symbolic, args)) and not any(map(_depends, attrs.values())):
            return []
        return left_open(lambda: self._infer(*args, **attrs))

    def forms(self, blocking: Any, call: Any, out: Type) -> list[Any]:
        """How it is computed on images with blocked channels; see `graph.layouts.images`."""
        return [] if self._layouts is None else list(self._layouts(blocking, call, out))

    def plain_cost(self, blocking: Any, call: Any, out: Type) -> float:
        """The cost of the plain form, where other forms have a cost."""
        return 0.0 if self._cost is None else self._cost(blocking, call, out)

    def part_offset(
        self, result: Value, args: Sequence[Value | None], attrs: dict[str, Any]
    ) -> Expr | None:
        """Where in its first operand the result begins, if it is a contiguous part of it."""
        return None if self._part is None else self._part(result, *args, **attrs)

    def is_item(self, args: Sequence[Value | None]) -> bool:
        """Whether the result is an item of the list that is the first operand, or is that list."""
        return self._item is not None and self._item(*args)

    def is_join(self, result: Value, args: Sequence[Value | None], attrs: dict[str, Any]) -> bool:
        """Whether the operands are stored one after the other in the result."""
        return self._join is not None and self._join(result, *args, **attrs)

    def bind(
        self, args: Sequence[Any], attrs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Operands, one for each parameter, and attributes with the defaults filled in."""
        return self._bind_operands(args), self._bind_attributes(attrs)

    def _bind_operands(self, args: Sequence[Any]) -> tuple[Any, ...]:
        fixed = [o for o in self.operands if o.arity != "many"]
        variadic = len(fixed) < len(self.operands)
        least = len([o for o in fixed if o.arity == "one"])
        if len(args) < least or (len(args) > len(fixed) and not variadic):
            raise UserError(f"{self.name} takes {self._counts()}, not {len(args)}")
        for operand, arg in zip(fixed, args, strict=False):
            if arg is None and operand.arity == "one":
                raise UserError(f"{self.name} is not given {operand.name}")
        if any(a is None for a in args[len(fixed) :]):
            raise UserError(f"{self.name} is given a missing operand")
        return (*args, *[None] * (len(fixed) - len(args)))

    def _counts(self) -> str:
        parts = [{"one": "{}", "optional": "{}?", "many": "*{}"}[o.arity] for o in self.operands]
        names = [p.format(o.name) for p, o in zip(parts, self.operands, strict=True)]
        return f"the operands ({', '.join(names)})"

    def _bind_attributes(self, attrs: dict[str, Any]) -> dict[str, Any]:
        for name in attrs:
            if name not in self.attributes:
                raise UserError(
                    f"{self.name} has no attribute {name}", remedy=nearest(name, self.attributes)
                )
        return {n: self._attribute(a, attrs) for n, a in self.attributes.items()}

    def _attribute(self, declared: Attribute, attrs: dict[str, Any]) -> Any:
        if declared.name in attrs:
            return declared.coerce(self.name, attrs[declared.name])
        if declared.is_required:
            raise UserError(f"{self.name} is not given the attribute {declared.name}")
        return declared.default

    def _rule(self, kind: str) -> Callable[..., Any]:
        rule = getattr(self, f"_{kind}")
        if rule is None:
            raise InternalError(f"operator {self.name} declares no {kind}")
        return rule

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: dict[str, OpDef] = {}


@overload
def op(rule: Callable[..., Any], /) -> OpDef: ...


@overload
def op(
    *,
    pure: bool = True,
    host: bool = False,
    structural: bool = False,
    view: bool = False,
    scalar: bool = False,
) -> Callable[[Callable[..., Any]], OpDef]: ...


def op(
    rule: Callable[..., Any] | None = None,
    /,
    *,
    pure: bool = True,
    host: bool = False,
    structural: bool = False,
    view: bool = False,
    scalar: bool = False,
) -> OpDef | Callable[[Callable[..., Any]], OpDef]:
    """Declare an operator by its type rule; underscores at the end of the name are dropped."""

    def declare(f: Callable[..., Any]) -> OpDef:
        made = OpDef(f, pure=pure, host=host, structural=structural, view=view, scalar=scalar)
        if made.name in OPS:
            raise InternalError(f"operator {made.name} is declared twice")
        OPS[made.name] = made
        return made

    return declare if rule is None else declare(rule)


def find_op(name: str) -> OpDef:
    """The operator of this name; an error that names the nearest ones if there is none."""
    from tilewright.graph.ops import load_families

    load_families()
    if name not in OPS:
        raise UserError(f"unknown operator {name}", remedy=nearest(name, OPS))
    return OPS[name]


def _tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if is_sequence(results) else (results,)


def _is_symbolic(value: Value | None) -> bool:
    """Whether the shape or the known elements of a value depend on symbolic dimensions."""
    if value is None:
        return False
    if not isinstance(value.type, TensorType) or not value.type.is_static:
        return True
    if value.constant is not None or value.known is None:
        return False
    return any(free_vars(e) for e in value.known.ravel())


def _depends(attribute: Any) -> bool:
    """Whether an attribute depends on symbolic dimensions."""
    if is_tuple(attribute):
        return any(map(_depends, attribute))
    return isinstance(attribute, Expr)


# ---- reading a declaration ----------------------------------------------------------------------

_OPERANDS: dict[str, Arity] = {"Value": "one", "Value | None": "optional"}


def _signature(
    name: str, rule: Callable[..., Any]
) -> tuple[tuple[Operand, ...], dict[str, Attribute]]:
    operands: list[Operand] = []
    attributes: dict[str, Attribute] = {}
    for p in inspect.signature(rule).parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            default = REQUIRED if p.default is p.empty else p.default
            attributes[p.name] = attribute(name, p.name, _annotation(p), default)
        else:
            operands.append(_operand(name, p))
    return tuple(operands), attributes


def _operand(op_name: str, p: inspect.Parameter) -> Operand:
    arity = _OPERANDS.get(_annotation(p))
    if arity is None:
        raise InternalError(f"operator {op_name} declares the operand {p.name}: {p.annotation}")
    return Operand(p.name, "many" if p.kind is p.VAR_POSITIONAL else arity)


def _annotation(p: inspect.Parameter) -> str:
    return p.annotation if isinstance(p.annotation, str) else p.annotation.__name__
