"""annotate(target, key, value)"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tilewright.ir import Block, For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require


def annotate(tree: Tree, target: For | Block, key: str, value: Any) -> Edit:
    """Annotate a loop or block for later stages; this does not change the semantics.

    for i in range(8): …      -->      for i in range(8, note={"key": 1}): …
    """
    check(tree, target, key, value)
    # Through JSON and back, so that a trace replayed from a file gives the same value.
    noted = {**target.annotations, key: json.loads(json.dumps(value))}
    return Edit(tree.replace(target, replace(target, annotations=noted)))


def check(tree: Tree, target: For | Block, key: str, value: Any) -> None:
    require(tree, f"cannot annotate {name_of(target)} with {key!r}", _is_plain(key, value))


def name_of(target: For | Block) -> str:
    return f"block {target.name}" if isinstance(target, Block) else f"loop {target.var.name}"


def _is_plain(key: object, value: Any) -> Fault | None:
    if not isinstance(key, str) or not key:
        return Fault("a key is a text that is not empty")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return Fault(f"its value cannot be kept in a trace ({error})", "use plain JSON values")
    return None
