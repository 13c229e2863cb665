"""Weights in HDF5 files: which datasets belong to which layer, and their bytes.

There are two kinds of files: those inside `.keras` are a tree of groups, one for each layer, with
numbered weights; those of `.h5` have a list of named weights for each layer of the outermost model.
Files are read where they are mapped; nothing outside of them is read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.graph import Array
from tilewright.support.errors import UserError

#: Compressed data cannot expand by more.
_MOST_GROWTH: Final = 1100
#: Data that is not in the file (fill values) is created up to this size.
_MOST_MADE: Final = 1 << 20
_MOST_BYTES: Final = 1 << 34


@cache
def h5py_package() -> Any:
    """The package, or an error that says how to install it."""
    try:
        return import_module("h5py")
    except ImportError as error:
        raise UserError(
            "cannot read a Keras model",
            reason=f"the package h5py cannot be imported ({error})",
            remedy="install it: pip install tilewright[keras]",
        ) from None


class MappedFile(io.RawIOBase):
    """Bytes in memory as a file, without a copy of them."""

    def __init__(self, data: Array) -> None:
        self._data, self._at = data.data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max((0, self._at, len(self._data))[whence] + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


class WeightFile:
    """An HDF5 file, whose bytes are mapped."""

    def __init__(self, data: Array, name: str) -> None:
        self.data, self.name = data, name
        h5py = h5py_package()
        try:
            #: Open as long as anything in it is used.
            self._file: Any = h5py.File(io.BufferedReader(MappedFile(data)), "r")
            self.root: Any = self._file["/"].id
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{name} has no weights that can be read",
                reason=f"the HDF5 file does not open ({error})",
                remedy="check that the file is complete",
            ) from None

    def member(self, group: Any, path: str) -> Any:
        """A member of a group, or of groups inside it, that is stored in this file; None if there
        is none. No link on the way may lead out of the file."""
        for name in path.split("/"):
            group = self._member(group, name) if is_group(group) else None
        return group

    def _member(self, group: Any, name: str) -> Any:
        h5py, key = h5py_package(), name.encode()
        try:
            if not name or not group.links.exists(key):
                return None
            if group.links.get_info(key).type != h5py.h5l.TYPE_HARD:
                raise UserError(
                    f"{self.name} has a link {name} to another place",
                    reason="weights must lie in the file itself",
                )
            return h5py.h5o.open(group, key)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(name, error) from None

    def keys(self, group: Any) -> list[str]:
        """The names of the members of a group."""
        try:
            return [name.decode() for name in group]
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise self._damaged("a group", error) from None

    def array(self, dataset: Any, what: str) -> Array:
        """The elements of a dataset: those in the file where they are, others read."""
        try:
            return self._array(dataset, what)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
            raise self._damaged(what, error) from None

    def _array(self, dataset: Any, what: str) -> Array:
        h5py = h5py_package()
        shape = dataset.shape if isinstance(dataset, h5py.h5d.DatasetID) else None
        if shape is None:
            raise UserError(f"{what} is no tensor")
        dtype = dataset.dtype
        if dtype.kind not in "fiub":
            raise UserError(f"{what} has elements of {dtype}", reason="weights are numbers")
        # Only contiguous elements in this file have an offset.
        offset, size = dataset.get_offset(), prod(shape) * dtype.itemsize
        if offset is not None:
            if offset + size > self.data.size:
                raise UserError(f"{what} ends after its file")
            found = self.data[offset : offset + size].view(dtype).reshape(shape)
            return self._typed(dataset, found)
        made = dataset.get_create_plist()
        if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count() > 0:
            raise UserError(f"{what} has its data in other files", reason="it must lie in its own")
        limit = max(dataset.get_storage_size() * _MOST_GROWTH, _MOST_MADE)
        if size > min(limit, _MOST_BYTES):
            raise UserError(f"{what} has {size} bytes", reason="there are not as many in the file")
        return self._typed(dataset, h5py.Dataset(dataset)[()])

    @staticmethod
    def _typed(dataset: Any, found: Array) -> Array:
        """NumPy has no bfloat16: files have its bits, and an attribute that says so."""
        if found.dtype.itemsize == 2 and attributes_of(dataset).get("dtype") == "bfloat16":
            return found.view(np.dtype(import_module("ml_dtypes").bfloat16))
        return found.astype(found.dtype.newbyteorder("="), copy=False)

    def _damaged(self, what: str, error: Exception) -> UserError:
        return UserError(f"{self.name} is damaged", reason=f"{what} cannot be read ({error})")


def is_group(found: Any) -> bool:
    """Whether it is a group of an HDF5 file: groups and datasets are identifiers of h5py, as its
    own objects take several times as long to create."""
    return isinstance(found, h5py_package().h5g.GroupID)


def attributes_of(found: Any) -> Any:
    """The attributes of a group or a dataset by their names."""
    h5py = h5py_package()
    return (h5py.Group if is_group(found) else h5py.Dataset)(found).attrs


class Weights:
    """The weights of one layer, and of the layers inside it."""

    def child(self, *names: str) -> Weights:
        """Those of an inner layer, by any of its names in files."""
        raise NotImplementedError

    def layer(self, name: str, key: str) -> Weights:
        """Those of a layer of a model: by its own name, or its numbered one in `.keras` files."""
        raise NotImplementedError

    def arrays(self, names: Sequence[str]) -> list[Array]:
        """Weights in the order in which the layer creates them; `names` are Keras's own."""
        raise NotImplementedError


class NoWeights(Weights):
    """A layer without weights in the file."""

    def __init__(self, what: str) -> None:
        self._what = what

    def child(self, *names: str) -> Weights:
        return self

    def layer(self, name: str, key: str) -> Weights:
        return self

    def arrays(self, names: Sequence[str]) -> list[Array]:
        if not names:
            return []
        raise UserError(
            f"there are no weights for {self._what}", reason=f"it has {', '.join(names)}"
        )


class TreeWeights(Weights):
    """A group of the file inside `.keras`: `vars` has the weights, other members are layers."""

    def __init__(self, file: WeightFile, group: Any, path: str = "") -> None:
        self._file, self._group, self._path = file, group, path
        self._names: dict[str, str] | None = None
        #: Inner groups that were looked up.
        self._children: dict[str, TreeWeights | None] = {}

    def child(self, *names: str) -> Weights:
        for name in names:
            found = self._child(name)
            if found is not None:
                return found
        return NoWeights(f"{self._path}/{names[0]}")

    def _child(self, name: str) -> TreeWeights | None:
        if name not in self._children:
            found = self._file.member(self._group, name)
            path = f"{self._path}/{name}"
            self._children[name] = TreeWeights(self._file, found, path) if is_group(found) else None
        return self._children[name]

    def layer(self, name: str, key: str) -> Weights:
        layers = self.child("layers")
        return layers.member(name, key) if isinstance(layers, TreeWeights) else layers

    def member(self, name: str, key: str) -> Weights:
        """The weights of one of the model's layers."""
        key = self.keys_by_name().get(name, key)
        return self._children.get(key) or NoWeights(f"{self._path}/{key}")

    def keys_by_name(self) -> dict[str, str]:
        """The members by the names of their layers, where files have them."""
        if self._names is None:
            self._names = {}
            for key in self._file.keys(self._group):
                inner = self.child(key)
                own = inner.child("vars") if isinstance(inner, TreeWeights) else inner
                if isinstance(own, TreeWeights) and (name := own.stored_name()):
                    self._names[name] = key
        return self._names

    def stored_name(self) -> str:
        """The name of the layer, where the file has it."""
        try:
            is_there = h5py_package().h5a.exists(self._group, b"name")
            return str(attributes_of(self._group)["name"]) if is_there else ""
        except (OSError, RuntimeError, ValueError, KeyError, TypeError):
            return ""

    def arrays(self, names: Sequence[str]) -> list[Array]:
        own = self.child("vars")
        if not isinstance(own, TreeWeights):
            return own.arrays(names)
        return [own.array(str(k), name) for k, name in enumerate(names)]

    def array(self, key: str, name: str) -> Array:
        found = self._file.member(self._group, key)
        if found is None:
            raise UserError(f"{self._path} has no weight {name}")
        return self._file.array(found, f"{self._path}/{name}")


class NamedWeights(Weights):
    """A list of datasets with paths, such as `lstm/lstm_cell/kernel:0`."""

    def __init__(self, file: WeightFile, found: Sequence[tuple[list[str], Any]], what: str) -> None:
        self._file, self._found, self._what = file, found, what

    @classmethod
    def of_layer(cls, file: WeightFile, group: Any, layer: str) -> Weights:
        """Those of one layer of the outermost model."""
        member = file.member(group, layer)
        if not is_group(member):
            return NoWeights(f"the layer {layer}")
        found: list[tuple[list[str], Any]] = []
        for name in texts(attributes_of(member), "weight_names"):
            dataset = file.member(member, name)
            if dataset is None:
                raise UserError(f"the layer {layer} has no weight {name}")
            found.append((_plain_path(name), dataset))
        return cls(file, found, layer)

    def child(self, *names: str) -> Weights:
        inside = [
            (path[path.index(name) + 1 :], data)
            for path, data in self._found
            for name in [next((n for n in names if n in path[:-1]), None)]
            if name is not None
        ]
        # The only inner layer need not be named in the paths.
        return NamedWeights(self._file, inside or self._found, f"{self._what}/{names[0]}")

    def layer(self, name: str, key: str) -> Weights:
        found = [(p[p.index(name) + 1 :], d) for p, d in self._found if name in p[:-1]]
        if not found:
            return NoWeights(f"the layer {name}")
        return NamedWeights(self._file, found, f"{self._what}/{name}")

    def arrays(self, names: Sequence[str]) -> list[Array]:
        by_name = {path[-1]: data for path, data in self._found}
        in_order = [data for _, data in self._found]
        if len(in_order) < len(names):
            raise UserError(
                f"{self._what} has {len(in_order)} weights", reason=f"it needs {', '.join(names)}"
            )
        return [
            self._file.array(by_name.get(name, in_order[k]), f"{self._what}/{name}")
            for k, name in enumerate(names)
        ]


def texts(attributes: Any, name: str) -> list[str]:
    """A list of strings in an attribute, or in several where it is long."""
    try:
        found = list(attributes[name]) if name in attributes else []
        k = 0
        while f"{name}{k}" in attributes:
            found += list(attributes[f"{name}{k}"])
            k += 1
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the attribute {name} cannot be read", reason=str(error)) from None
    return [f.decode("utf-8", "replace") if isinstance(f, bytes) else str(f) for f in found]


def _plain_path(name: str) -> list[str]:
    return re.sub(r":\d+$", "", name).split("/")


class RootNamedWeights(Weights):
    """The outermost model of an `.h5` file."""

    def __init__(self, file: WeightFile, group: Any) -> None:
        self._file, self._group = file, group
        #: Layers that were looked up, which takes most of the time.
        self._layers: dict[str, Weights] = {}

    def child(self, *names: str) -> Weights:
        return self.layer(names[0], "")

    def layer(self, name: str, key: str) -> Weights:
        if name not in self._layers:
            self._layers[name] = NamedWeights.of_layer(self._file, self._group, name)
        return self._layers[name]

    def arrays(self, names: Sequence[str]) -> list[Array]:
        return NoWeights("the model").arrays(names)
