"""State shared by the emitters of one LLVM function: builder, variables, buffer addresses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewright.arith import Ranges, knowing_nothing
from tilewright.codegen.llvm.available import AvailableValues
from tilewright.codegen.llvm.types import Builder, LLType, LLValue, llvm, mangle
from tilewright.ir import Buffer, Expr, Var
from tilewright.support.errors import InternalError
from tilewright.target import Target

#: Key for the address of an element: its buffer and index.
Place = tuple[Buffer, Expr]


class AliasScopes:
    """Metadata that tells LLVM that accesses to distinct buffers never overlap.

    Parameter attributes would not do: bodies of parallel loops are outlined to functions that load
    their pointers from memory.
    """

    def __init__(self, module: Any, name: str) -> None:
        self._module = module
        self._domain = module.add_metadata([llvm.MetaDataString(module, f"{name}.buffers")])
        self._scopes: dict[Buffer, Any] = {}
        self._first: dict[Buffer, Buffer] = {}
        self._own: dict[Buffer, Any] = {}
        self._others: dict[Buffer, Any] = {}

    def register(self, buffers: Iterable[Buffer], aliased: Sequence[Buffer] = ()) -> None:
        """Declare all buffers of a function, before the first access is marked.

        Those in `aliased` may share memory.
        """
        for buffer in buffers:
            label = llvm.MetaDataString(self._module, f"{buffer.name}.{len(self._scopes)}")
            self._scopes[buffer] = self._module.add_metadata([label, self._domain])
        for buffer in aliased[1:]:
            self._scopes[buffer] = self._scopes[aliased[0]]
            self._first[buffer] = aliased[0]

    def alias_class(self, buffer: Buffer) -> Buffer:
        """The representative of the buffers that may share memory with this one."""
        return self._first.get(buffer, buffer)

    def mark(self, access: Any, buffer: Buffer) -> None:
        """Attach a buffer's alias metadata to a load or store of it."""
        if len(self._scopes) < 2:
            return
        if buffer not in self._own:
            own = self._scopes[buffer]
            rest = list(dict.fromkeys(s for s in self._scopes.values() if s is not own))
            self._own[buffer] = self._module.add_metadata([own])
            self._others[buffer] = self._module.add_metadata(rest)
        access.set_metadata("alias.scope", self._own[buffer])
        access.set_metadata("noalias", self._others[buffer])


@dataclass
class Context:
    """The state of emitting one LLVM function."""

    module: Any
    target: Target
    builder: Builder
    aliases: AliasScopes
    #: Values of the variables, and base addresses of the buffers, in scope.
    variables: dict[Var, LLValue] = field(default_factory=dict[Var, LLValue])
    addresses: dict[Buffer, LLValue] = field(default_factory=dict[Buffer, LLValue])
    #: Stack slots that hold the addresses of numbered heap blocks.
    blocks: dict[int, LLValue] = field(default_factory=dict[int, LLValue])
    #: Stack slots that hold the addresses of numbered lists.
    lists: dict[int, LLValue] = field(default_factory=dict[int, LLValue])
    #: Computed values, innermost scope last: values of a loop body are not valid after it.
    scopes: list[dict[Expr | Place, LLValue]] = field(default_factory=lambda: [{}])
    #: Sums of the statement being emitted that accumulate into the element they overwrite. Only
    #: these are fused with products: elsewhere every operation is rounded by itself, so that
    #: operators give the same bits in one kernel as in several.
    accumulations: frozenset[Expr] = frozenset()
    #: Known ranges of indices.
    ranges: Ranges = field(default_factory=knowing_nothing)
    #: Values that are valid until memory changes.
    available: AvailableValues = field(default_factory=AvailableValues)

    def known(self, expr: Expr | Place) -> LLValue | None:
        for scope in reversed(self.scopes):
            value = scope.get(expr)
            if value is not None:
                return value
        return None

    def remember(self, expr: Expr | Place, value: LLValue) -> None:
        self.scopes[-1][expr] = value

    @contextmanager
    def knowing(self, learn: Callable[[Ranges], Ranges]) -> Generator[None]:
        """Add knowledge about indices within the block."""
        before = self.ranges
        self.ranges = learn(before)
        yield
        self.ranges = before

    @contextmanager
    def nested_scope(self) -> Generator[None]:
        """Forget values computed within the block: they may not dominate what follows."""
        outer, self.available = self.available, AvailableValues()
        self.scopes.append({})
        yield
        self.scopes.pop()
        # Anything may have been written within.
        outer.forget()
        self.available = outer

    def variable(self, var: Var) -> LLValue:
        value = self.variables.get(var)
        if value is None:
            raise InternalError(f"variable {var.name} has no value while code is generated")
        return value

    def address(self, buffer: Buffer) -> LLValue:
        value = self.addresses.get(buffer)
        if value is None:
            raise InternalError(f"buffer {buffer.name} has no address while code is generated")
        return value

    def declare(self, name: str, result: LLType, params: Sequence[LLType]) -> Any:
        """The external function `name`, declared once in the module."""
        found = self.module.globals.get(name)
        if found is None:
            found = llvm.Function(self.module, llvm.FunctionType(result, params), name)
        return found

    def intrinsic(
        self,
        name: str,
        result: LLType,
        args: Sequence[LLValue],
        overloads: Sequence[LLType],
        fastmath: Sequence[str] = (),
    ) -> LLValue:
        """A call of LLVM's intrinsic `name`, overloaded on the given types."""
        full = ".".join([name, *(mangle(t) for t in overloads)])
        callee = self.declare(full, result, [a.type for a in args])
        return self.builder.call(callee, args, fastmath=fastmath)
