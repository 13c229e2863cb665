"""Configurations of layers, whose entries are checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.frontends.keras.table import TABLE
from tilewright.support.errors import UserError

REQUIRED: Final = object()
#: Larger numbers are refused.
_MOST: Final = 1 << 40
#: Classes whose item types checkers need not know.
_LIST: Final[Any] = list
_DICT: Final[Any] = dict


def as_list(value: Any) -> list[Any] | None:
    """The value if it is a JSON list, else None."""
    return value if isinstance(value, _LIST) else None


def as_dict(value: Any) -> dict[str, Any] | None:
    """The value if it is a JSON object, else None."""
    return value if isinstance(value, _DICT) else None


class Config:
    """The entries of a configuration, typed."""

    def __init__(self, values: Any, what: str) -> None:
        found = as_dict(values)
        if found is None:
            raise UserError(f"{what} has no configuration")
        self.values: Mapping[str, Any] = found
        self._what = what

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def raw(self, name: str, default: Any = None) -> Any:
        found = self.values.get(name)
        return default if found is None else found

    def integer(self, name: str, default: Any = REQUIRED) -> Any:
        return self._typed(name, default, int, "a whole number")

    def real(self, name: str, default: Any = REQUIRED) -> Any:
        found = self._typed(name, default, int | float, "a number")
        return float(found) if isinstance(found, int) else found

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._typed(name, default, bool | int, "true or false"))

    def text(self, name: str, default: Any = REQUIRED) -> Any:
        return self._typed(name, default, str, "a word")

    def integers(self, name: str, count: int, default: Any = REQUIRED) -> tuple[int, ...]:
        """`count` integers; a single one is for all."""
        found = self._found(name, default)
        if isinstance(found, int):
            found = [found] * count
        items = as_list(found)
        if items is None or len(items) != count:
            raise self._refused(name, found, f"{count} whole numbers")
        return tuple(self._checked(name, v) for v in items)

    def _found(self, name: str, default: Any) -> Any:
        found = self.values.get(name)
        if found is None:
            if default is REQUIRED:
                raise UserError(f"{self._what} has no {name}")
            return default
        return found

    def _typed(self, name: str, default: Any, kind: Any, text: str) -> Any:
        found = self._found(name, default)
        if found is default:
            return found
        if not isinstance(found, kind):
            raise self._refused(name, found, text)
        return self._checked(name, found) if isinstance(found, int) else found

    def _checked(self, name: str, value: Any) -> int:
        if not isinstance(value, int) or abs(value) > _MOST:
            raise self._refused(name, value, "a whole number")
        return value

    def _refused(self, name: str, found: Any, wanted: str) -> UserError:
        return UserError(
            f"{self._what} has the {name} {str(found)[:80]}", reason=f"it should be {wanted}"
        )


@dataclass(frozen=True, eq=False)
class LayerSpec:
    """The description of one layer in a file; equal descriptions are still different layers."""

    kind: str
    #: Layers have the domain "", operations that of their module.
    domain: str
    name: str
    config: Config
    #: The whole entry of the layer, with how it was built.
    entry: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The name in messages."""
        return f"layer {self.name} ({self.kind})"


#: Modules whose functions are used like layers.
_OPERATIONS: Final = ("keras.src.ops.", "keras.ops", "keras.src.backend")


def layer_spec(entry: Any) -> LayerSpec:
    """A layer from its entry `{class_name, config, …}`."""
    if as_dict(entry) is None:
        raise UserError(
            f"a layer is {str(entry)[:80]}", reason="it should be a class and its config"
        )
    outer = Config(entry, "a layer")
    kind = outer.text("class_name")
    inner = outer.raw("config", {})
    if kind == "Sequential" and as_list(inner) is not None:
        # Only the layers, as Keras wrote them before version 2.2.3.
        inner = {"layers": inner}
    config = Config(inner, f"a layer of {kind}")
    name = outer.text("name", None) or config.text("name", kind.lower())
    domain = "ops" if _is_operation(outer, kind, config) else ""
    config = Config(config.values, f"layer {name} ({kind})")
    return LayerSpec(kind, domain, name, config, outer.values)


def _is_operation(entry: Config, kind: str, config: Config) -> bool:
    """Whether an entry is a function of `keras.ops`; `.h5` files lack modules, but there, layers
    state whether they are trainable."""
    module = entry.raw("module")
    if isinstance(module, str):
        return module.startswith(_OPERATIONS)
    return "trainable" not in config.values and TABLE.find("ops", kind) is not None
