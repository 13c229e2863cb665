"""Converting one node: errors say which one, and what is damaged is told as such."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.graph import Builder, TensorType, Value
from tilewright.support.errors import InternalError, TilewrightError, UserError
from tilewright.support.faults import during


@contextmanager
def converting(builder: Builder, kind: str, origin: str, remedy: str) -> Generator[None]:
    """A block in which a node of a model (`kind`: node, layer) becomes operators of a graph."""
    builder.origin = origin
    with during(kind, origin):
        try:
            yield
        except TilewrightError as error:
            raise located(error, origin) from error.__cause__
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            MemoryError,
            RecursionError,
        ) as error:
            # Converters trust that operands and attributes are what the format says they are.
            raise UserError(
                f"cannot convert {origin}",
                reason=f"its operands or attributes do not fit ({type(error).__name__}: {error})",
                remedy=remedy,
            ) from error


def located(error: TilewrightError, origin: str) -> TilewrightError:
    """The error with the node it comes from; the innermost one is told."""
    if isinstance(error, InternalError | UnspecialisedError) or "\n    at " in error.listing:
        return error
    told = [t for t in error.listing.split("\n") if t and not t.startswith("    from ")]
    listing = "\n".join(["", *told, f"    at {origin}"])
    return UserError(error.what, reason=error.reason, remedy=error.remedy, listing=listing)


def as_list(results: Any) -> list[Value | None]:
    """What a converter returns: one value, or several."""
    if isinstance(results, list | tuple):
        return list(results)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return [results]


def named_output(builder: Builder, name: str, value: Value, taken: set[Value]) -> None:
    """Make a value an output of the model by this name; one that has to keep its name is copied."""
    if value not in taken and value.constant is None:
        value.name = name
    if value.name != name and isinstance(value.type, TensorType):
        builder.origin = f"output {name}"
        value = builder.emit("identity", value, name=name)
    builder.output(value)
    taken.add(value)
