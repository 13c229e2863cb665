"""Inputs and outputs in the form used in a manifest."""

from __future__ import annotations

from typing import Any

from tilewright.runtime.binding import NativeSpec, TensorSpec


def spec_fields(spec: NativeSpec) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": spec.name, "dtype": spec.dtype.name}
    if isinstance(spec, TensorSpec):
        return {**fields, "shape": list(spec.shape)}
    items = {} if spec.items is None else {"items": list(spec.items)}
    return {**fields, "kind": spec.kind, **items}
