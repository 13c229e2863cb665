"""Calibration data: arrays, files, folders, anything that can be iterated over.

Every fourth sample is held out: it is not calibrated with, and the error is measured on it. Samples
are counted along the first axis where a model takes any number of them, so that ranges and errors
do not depend on how data is cut into batches.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from tilewright.graph import Array, Module, TensorType, Value
from tilewright.ir import Const, Var
from tilewright.quantize.observe import Batch
from tilewright.support.errors import UserError, nearest

#: One of so many samples is held out.
_EVERY: Final = 4
#: Samples that run at once, at most.
_MOST: Final = 16
#: Batches that are made up, and the size of dimensions of which nothing is known.
_RANDOM: Final = 8
_SIZE: Final = 16


class Data:
    """Batches of samples that can be gone through more than once."""

    def __init__(self, given: Any, module: Module, seed: int = 0) -> None:
        self._params = module.main.params
        for param in self._params:
            if not isinstance(param.type, TensorType):
                raise UserError(f"cannot calibrate with {param}", reason="it is no tensor")
        self._rows = _row_dim(self._params)
        self._batches = self._source(given, seed)

    def calibration(self) -> Iterator[Batch]:
        """The samples that are calibrated with."""
        return self._part(lambda number: number % _EVERY != _EVERY - 1, _MOST)

    def held_out(self) -> Iterator[Batch]:
        """The samples that are not, one by one."""
        return self._part(lambda number: number % _EVERY == _EVERY - 1, 1)

    def all(self, most: int = _MOST) -> Iterator[Batch]:
        """All samples, so many at once."""
        return self._part(lambda number: number >= 0, most)

    # ---- samples --------------------------------------------------------------------------------

    def _part(self, wanted: Callable[[Array], Any], most: int) -> Iterator[Batch]:
        start = 0
        for index, batch in enumerate(self._batches()):
            checked = self._checked(batch, index)
            for piece in self._pieces(checked):
                count = self._samples(piece)
                kept = np.flatnonzero(wanted(np.arange(start, start + count)))
                start += count
                if kept.size:
                    yield from _taken(piece, kept, count, most)

    def _samples(self, batch: Batch) -> int:
        """How many samples a batch holds; it is one where they cannot be told apart."""
        return len(batch[self._params[0].name]) if self._rows is not None else 1

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        """A batch in pieces of the size that the model takes, where that is fixed."""
        if self._rows is not None:
            if self._samples(batch):
                yield batch
            return
        count = self._count(batch)
        for k in range(count):
            yield {p.name: _piece(p, batch[p.name], k, count) for p in self._params}

    def _count(self, batch: Batch) -> int:
        counts = {_pieces_in(p, batch[p.name]) for p in self._params} - {1}
        if len(counts) > 1:
            raise UserError(
                "inputs of a batch hold different numbers of samples",
                reason=", ".join(f"{p.name} {list(batch[p.name].shape)}" for p in self._params),
            )
        return counts.pop() if counts else 1

    # ---- checks ---------------------------------------------------------------------------------

    def _checked(self, batch: Any, index: int) -> Batch:
        named = self._named(batch, index)
        return {p.name: self._array(p, named[p.name], index) for p in self._params}

    def _named(self, batch: Any, index: int) -> Mapping[str, Any]:
        names = [p.name for p in self._params]
        if not isinstance(batch, Mapping):
            arrays = cast("Sequence[Any]", batch if isinstance(batch, list | tuple) else [batch])
            if len(arrays) != len(names):
                raise UserError(
                    f"batch {index} holds {len(arrays)} arrays",
                    reason=f"the model takes {', '.join(names)}",
                )
            return dict(zip(names, arrays, strict=True))
        named = cast("Mapping[str, Any]", batch)
        for name in named:
            if name not in names:
                raise UserError(
                    f"batch {index} holds {name}, which is no input of the model",
                    remedy=nearest(str(name), names),
                )
        missing = [n for n in names if n not in named]
        if missing:
            raise UserError(f"batch {index} lacks {', '.join(missing)}")
        return named

    def _array(self, param: Value, given: Any, index: int) -> Array:
        array = np.asarray(given)
        wanted = param.dtype.numpy
        if array.dtype != wanted and not np.can_cast(array.dtype, wanted, "same_kind"):
            raise UserError(
                f"batch {index}: input {param.name} is {array.dtype}", reason=f"it must be {wanted}"
            )
        if array.ndim != param.ndim:
            raise UserError(
                f"batch {index}: input {param.name} has the shape {list(array.shape)}",
                reason=f"the model takes {param}",
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UserError(
                f"batch {index}: input {param.name} holds NaN or infinity",
                reason="no range of bytes can hold it",
                remedy="clean the calibration data",
            )
        return array.astype(wanted, copy=False)

    # ---- sources --------------------------------------------------------------------------------

    def _source(self, given: Any, seed: int) -> Callable[[], Iterable[Any]]:
        if isinstance(given, str) and given == "random":
            return self._random(seed)
        if isinstance(given, str | os.PathLike):
            return _files(Path(cast(str, given)))
        if isinstance(given, Mapping | np.ndarray):
            return lambda: [given]
        if isinstance(given, Iterator):
            return _Spool(cast("Iterator[Any]", given)).batches
        if isinstance(given, Iterable):
            return lambda: cast("Iterable[Any]", given)
        raise UserError(
            f"cannot calibrate with {type(given).__name__}",
            remedy="pass batches (dicts of arrays by input), an .npz file, a folder of these, or"
            ' "random"',
        )

    def _random(self, seed: int) -> Callable[[], Iterable[Any]]:
        warnings.warn(
            "calibrating with random data: ranges will be wrong for real data, and so will the"
            " error that is told",
            stacklevel=4,
        )

        def made() -> Iterator[dict[str, Array]]:
            rng = np.random.default_rng(seed)
            for _ in range(_RANDOM):
                yield {p.name: _made_up(p, rng) for p in self._params}

        return made


def _row_dim(params: Sequence[Value]) -> Var | None:
    """The symbolic dimension that counts samples: the first of every input."""
    first = {p.shape[0] if p.ndim else None for p in params}
    dim = first.pop() if len(first) == 1 else None
    others = {d for p in params for d in p.shape[1:]}
    return dim if isinstance(dim, Var) and dim not in others else None


def _taken(batch: Batch, kept: Array, count: int, most: int) -> Iterator[Batch]:
    """These samples of a batch, so many at once."""
    if len(kept) == count <= most:
        yield batch
        return
    for first in range(0, len(kept), most):
        rows = kept[first : first + most]
        yield {name: array[rows] for name, array in batch.items()}


def _pieces_in(param: Value, array: Array) -> int:
    """How many samples of a fixed size an array holds along its first axis."""
    size = param.shape[0] if param.ndim else None
    if not isinstance(size, Const) or not int(size.value) or len(array) == int(size.value):
        return 1
    count, rest = divmod(len(array), int(size.value))
    if rest:
        raise UserError(
            f"input {param.name} has {len(array)} rows",
            reason=f"the model takes {int(size.value)} at once",
        )
    return count


def _piece(param: Value, array: Array, number: int, count: int) -> Array:
    if _pieces_in(param, array) != count or count == 1:
        return array
    size = len(array) // count
    return array[number * size : (number + 1) * size]


def _made_up(param: Value, rng: np.random.Generator) -> Array:
    shape = [int(d.value) if isinstance(d, Const) else _SIZE for d in param.shape]
    if param.dtype.is_float:
        return rng.standard_normal(shape).astype(param.dtype.numpy)
    return rng.integers(0, 2, shape).astype(param.dtype.numpy)


# ---- files --------------------------------------------------------------------------------------


def _files(path: Path) -> Callable[[], Iterable[Any]]:
    if not path.exists():
        raise UserError(f"there is no file {path}", remedy="pass an .npz file or a folder of them")
    if not path.is_dir():
        return lambda: [_read(path)]
    found = sorted(p for p in path.iterdir() if p.suffix in (".npz", ".npy"))
    if not found:
        raise UserError(f"{path} holds no .npz or .npy files")
    return lambda: map(_read, found)


def _read(path: Path) -> Any:
    try:
        loaded: Any = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return cast(Array, loaded)
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, MemoryError):
        raise
    except Exception as error:
        # Archives, compression and headers each have errors of their own.
        raise UserError(
            f"cannot read arrays from {path}", reason=str(error).partition("\n")[0][:100]
        ) from None


class _Spool:
    """Batches of an iterator, which can be gone through only once, kept in files."""

    def __init__(self, given: Iterator[Any]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-calibration-")
        self._count = 0
        for batch in given:
            self._write(batch)

    def _write(self, batch: Any) -> None:
        place = Path(self._folder.name) / f"{self._count}"
        self._count += 1
        if isinstance(batch, Mapping):
            named = cast("Mapping[str, Any]", batch)
            np.savez(place.with_suffix(".npz"), **{str(k): _plain(v) for k, v in named.items()})  # pyright: ignore[reportArgumentType]
            return
        arrays = cast("Sequence[Any]", batch if isinstance(batch, list | tuple) else [batch])
        np.savez(place.with_suffix(".npz"), **{f"{k}": _plain(a) for k, a in enumerate(arrays)})  # pyright: ignore[reportArgumentType]
        place.with_suffix(".list").touch()

    def batches(self) -> Iterator[Any]:
        for k in range(self._count):
            place = Path(self._folder.name) / f"{k}"
            named = _read(place.with_suffix(".npz"))
            yield list(named.values()) if place.with_suffix(".list").exists() else named


def _plain(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise UserError(f"cannot calibrate with {type(value).__name__}", reason="it is no array")
    return array
