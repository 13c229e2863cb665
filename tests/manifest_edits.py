"""All small edits of a manifest, and what loading and running such a file ends in.

Run as a program, it takes a folder, the name of a model in it, and numbers of edits: it prints each
number before it tries that edit, so that whoever started it knows which one ended the process.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.runtime.artifact import container
from tilewright.support.errors import UserError

Edit = tuple[tuple[Any, ...], Any]
_GONE = object()
NUMBERS = (0, 1, -1, 7, 63, 64, 2**31, 2**61, 2**63 - 1, 2**64)
TEXTS = ("", "x", "float64", "int8", "nothing", "params.bin", "manifest.json")


def edits(manifest: Any) -> list[Edit]:
    """Places in a manifest, each with what is to stand there."""
    return list(_edits(manifest, ()))


def _edits(value: Any, path: tuple[Any, ...]) -> Iterator[Edit]:
    if path:
        yield path, _GONE
        for other in (None, 3, "text", [], {}, True, 0.5):
            if type(other) is not type(value):
                yield path, other
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _edits(item, (*path, name))
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield path, [*value[: k + 1], *value[k:]]
            yield from _edits(item, (*path, k))
        if len(value) > 1:
            yield path, value[::-1]
            yield path, [*value[1:], value[0]]
    elif isinstance(value, str):
        yield from ((path, other) for other in (*TEXTS, value + "x") if other != value)
    elif isinstance(value, int):
        near = (value + 1, value - 1, value + 64, value * 2)
        yield from ((path, other) for other in dict.fromkeys((*NUMBERS, *near)) if other != value)


def edited(manifest: Any, edit: Edit) -> Any:
    result = copy.deepcopy(manifest)
    (*path, last), new = edit
    place = result
    for step in path:
        place = place[step]
    if new is _GONE:
        del place[last]
    else:
        place[last] = new
    return result


def rewrite(source: Path, path: Path, manifest: Any) -> None:
    """The artifact with another manifest, and checksums that are right."""
    with zipfile.ZipFile(source) as old, container.ContainerWriter(path) as new:
        for name in old.namelist():
            data = old.read(name)
            if name == container.MANIFEST:
                data = json.dumps(manifest).encode()
            new.add(name, [data], len(data))


def manifest_of(path: Path) -> Any:
    with zipfile.ZipFile(path) as file:
        return json.loads(file.read(container.MANIFEST))


def outcome(path: Path, inputs: list[Any], wanted: list[Any]) -> str:
    """What loading and running a file ends in: `right`, `refused`, or what is wrong."""
    try:
        found = tw.load(path).run(inputs)
    except UserError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "right" if _same(found, wanted) else "other results"


def _same(a: Any, b: Any) -> bool:
    if isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if b is None or a is None:
        return a is b
    return np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)


def main() -> None:
    from tests.runtime.test_manifest_edits import MODELS

    folder, name, *numbers = sys.argv[1:]
    warnings.simplefilter("ignore")
    source = Path(folder) / f"{name}.twm"
    manifest, inputs = manifest_of(source), MODELS[name][1]
    wanted, all_edits = tw.load(source).run(inputs), edits(manifest_of(source))
    path = Path(folder) / f"edited-{name}.twm"
    for number in map(int, numbers):
        print("try", number, flush=True)
        rewrite(source, path, edited(manifest, all_edits[number]))
        print("end", number, outcome(path, inputs, wanted), flush=True)


if __name__ == "__main__":
    main()
