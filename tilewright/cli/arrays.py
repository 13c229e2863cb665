"""Arrays of the command line: read from .npz files, made up, written, summed up."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilewright.cli.loading import require_file
from tilewright.models.made_up import made_up, usual_sizes
from tilewright.support.errors import UserError, nearest
from tilewright.support.files import replacing

if TYPE_CHECKING:
    import numpy as np

    from tilewright.cli.console import Console
    from tilewright.runtime import Spec

    Array = np.ndarray[Any, Any]


def inputs_for(
    specs: Sequence[Spec], args: argparse.Namespace, console: Console
) -> dict[str, Array]:
    """An array for every input: from the file, or made up as the command line asks."""
    given = read_arrays(args.inputs) if args.inputs else {}
    names = [s.name for s in specs]
    for name in given:
        if name not in names:
            raise UserError(
                f"{args.inputs} holds {name}, which is no input of the model",
                remedy=nearest(name, names),
            )
    missing = [s for s in specs if s.name not in given]
    if missing and args.inputs and args.fill is None:
        raise UserError(
            f"{args.inputs} lacks {', '.join(s.name for s in missing)}",
            remedy="add the arrays, or let --fill random make them up",
        )
    sizes = usual_sizes(missing) | dims_of(specs, given) | dict(args.dim)
    guessed = sizes.keys() - dims_of(specs, given).keys() - dict(args.dim).keys()
    if guessed:
        listed = ", ".join(f"{name} = {sizes[name]}" for name in sorted(guessed))
        console.remark(f"made up: {listed}; --dim NAME=N sets another size")
    return {**given, **made_up(missing, sizes, args.fill or "random", args.seed)}


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name."""
    import numpy as np

    require_file(path)
    if not path.is_file():
        raise _no_arrays(path, "it is no regular file, and the whole of one is needed")
    try:
        with np.load(path, allow_pickle=False) as file:
            found: dict[str, Any] = {name: file[name] for name in file.files}
    except (OSError, MemoryError):
        raise
    except Exception as error:
        # Archives, compression and headers each have errors of their own.
        raise _no_arrays(path, str(error).partition("\n")[0][:100]) from None
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise _no_arrays(path, f"{name} in it is no array")
    return found


def _no_arrays(path: Path, reason: str) -> UserError:
    remedy = "write it with np.savez(path, NAME=array)"
    return UserError(f"{path} is no .npz file of arrays", reason=reason, remedy=remedy)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    import numpy as np

    with replacing(path) as file:
        np.savez(file, **{k: np.asarray(v) for k, v in arrays.items()})  # pyright: ignore[reportArgumentType]


def named_tensors(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Outputs by name; sequences as their items, and nothing for optionals that are none."""
    found: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, list):
            items = cast("list[Any]", value)
            found |= {f"{name}[{k}]": item for k, item in enumerate(items)}
        elif value is not None:
            found[name] = value
    return found


# ---- made up ------------------------------------------------------------------------------------


def dims_of(specs: Sequence[Spec], given: Mapping[str, Array]) -> dict[str, int]:
    """The symbolic dimensions that arrays show."""
    found: dict[str, int] = {}
    for spec in specs:
        shape: Any = getattr(spec, "shape", ())
        if spec.name in given and len(shape) == given[spec.name].ndim:
            pairs = zip(shape, given[spec.name].shape, strict=True)
            found.update({d: size for d, size in pairs if isinstance(d, str)})
    return found


def summary(array: Any) -> str:
    """An array in a few words."""
    import numpy as np

    values = np.asarray(array)
    head = f"{values.dtype.name}{list(values.shape)}"
    if values.dtype.kind not in "fiub" or not values.size:
        return head
    numbers = values.astype(np.float64)
    return f"{head}  min {numbers.min():.4g}  mean {numbers.mean():.4g}  max {numbers.max():.4g}"
