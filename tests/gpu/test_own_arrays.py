"""Arrays of the caller's on a device: inputs that are read and outputs that are written there."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder
from tilewright.graph import Module as Graph
from tilewright.runtime.gpu import dlpack
from tilewright.runtime.gpu.arrays import DeviceArray
from tilewright.simt.device import DEVICE
from tilewright.support.errors import UserError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((6, 4)).astype(np.float32)


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def graph() -> Graph:
    b = Builder()
    x = b.input("x", "f32", ("n", 6))
    y = b.matmul(x, WEIGHTS)
    b.output(b.relu(y))
    b.output(b.softmax(y))
    return b.build()


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(graph(), "simt")


@pytest.fixture(scope="module")
def here() -> Any:
    return tw.compile(graph())


def on_device(array: Array) -> DeviceArray:
    return DeviceArray(DEVICE, array.shape, array.dtype).fill(array)


class Tensor:
    """An array of another library, which speaks DLPack and has a stream of its own."""

    def __init__(self, held: Any) -> None:
        self.held = held
        #: The streams that were told to wait for the library's, and those that wait for ours.
        self.followed: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE.dlpack_type, 0

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        self.followed.append(stream or 0)
        return dlpack.capsule_of(self.held, DEVICE.dlpack_type)

    def numpy(self) -> Array:
        return self.held.numpy()


class Library:
    """What reads arrays of ours: it lets its stream wait for ours first."""

    def __init__(self) -> None:
        self.read: list[DeviceArray] = []

    def from_dlpack(self, array: DeviceArray) -> Tensor:
        self.read.append(array)
        return Tensor(array)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """The library that `Tensor` is of."""
    own = Library()
    home = Tensor.__module__.partition(".")[0]
    name = "a_library_of_tensors"
    module = ModuleType(name)
    module.from_dlpack = own.from_dlpack  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(dlpack._READERS, home, name)
    return own


# ---- run ----------------------------------------------------------------------------------------


def test_outputs_are_written_to_arrays_on_the_device(model: Any, here: Any) -> None:
    x, y = random(3, 6), on_device(np.zeros((3, 4), np.float32))
    results = model.run([on_device(x)], out=[y])
    assert results[0] is y
    np.testing.assert_allclose(y.numpy(), here.run([x])[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[1].numpy(), here.run([x])[1], rtol=1e-5, atol=1e-6)


def test_outputs_are_copied_to_arrays_of_the_processor(model: Any, here: Any) -> None:
    x, y = random(3, 6), np.zeros((3, 4), np.float32)
    for given in (x, on_device(x)):
        y[...] = 0
        results = model.run([given], out={"softmax": y})
        assert results[1] is y
        np.testing.assert_allclose(y, here.run([x])[1], rtol=1e-5, atol=1e-6)


def test_outputs_are_written_to_tensors_of_other_libraries(
    model: Any, here: Any, library: Library
) -> None:
    x = random(3, 6)
    given, y = Tensor(on_device(x)), Tensor(on_device(np.zeros((3, 4), np.float32)))
    results = model.run([given], out=[y])
    assert results[0] is y, "it comes back as what it is"
    np.testing.assert_allclose(y.numpy(), here.run([x])[0], rtol=1e-5, atol=1e-6)
    assert y.followed == [DEVICE.stream], "we wait for what the library does with it"
    assert library.read, "the library waits for us"


def test_arrays_of_other_sizes_are_refused(model: Any) -> None:
    x = on_device(random(3, 6))
    for wrong in (np.zeros((3, 5), np.float32), np.zeros((3, 4), np.float64)):
        with pytest.raises(UserError, match=r"output relu must be an array float32\[3, 4\]"):
            model.run([x], out=[on_device(wrong)])


def test_arrays_that_overlap_are_refused(model: Any) -> None:
    x, y = on_device(random(4, 6)), on_device(random(4, 4))
    with pytest.raises(UserError, match="shares memory with that of output"):
        model.run([x], out=[y, y])
    square = tw.compile(squares(), "simt")
    with pytest.raises(UserError, match="shares memory with that of input x"):
        square.run([y], out=[y])


def squares() -> Graph:
    b = Builder()
    x = b.input("x", "f32", (4, 4))
    b.output(b.mul(x, x))
    return b.build()


def test_arrays_that_never_change_are_refused(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dlpack._READERS, Tensor.__module__.partition(".")[0], "jax.dlpack")
    y = Tensor(on_device(np.zeros((3, 4), np.float32)))
    with pytest.raises(UserError, match="never change"):
        model.run([random(3, 6)], out=[y])


# ---- bind ---------------------------------------------------------------------------------------


def test_a_bound_model_runs_on_what_arrays_hold(model: Any, here: Any) -> None:
    given, y = on_device(random(3, 6)), on_device(np.zeros((3, 4), np.float32))
    bound = model.bind([given], [y])
    for _ in range(4):
        x = random(3, 6)
        given.fill(x)
        first, second = bound()
        assert first is y and second is bound.outputs[1]
        np.testing.assert_allclose(y.numpy(), here.run([x])[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(second.numpy(), here.run([x])[1], rtol=1e-5, atol=1e-6)


def test_a_bound_model_and_other_libraries_wait_for_each_other(
    model: Any, here: Any, library: Library
) -> None:
    held = on_device(random(3, 6))
    given, y = Tensor(held), Tensor(on_device(np.zeros((3, 4), np.float32)))
    bound = model.bind([given], [y])
    assert isinstance(bound.outputs[1], Tensor), "what it makes is of the library of inputs"
    for _ in range(2):
        x = random(3, 6)
        held.fill(x)
        before, read = len(given.followed), len(library.read)
        assert bound()[0] is y
        assert len(given.followed) == before + 1 and len(library.read) == read + 1
        np.testing.assert_allclose(y.numpy(), here.run([x])[0], rtol=1e-5, atol=1e-6)


def test_what_lies_elsewhere_cannot_be_bound(model: Any) -> None:
    x = random(3, 6)
    with pytest.raises(UserError, match="input x cannot be bound: it does not lie on simt"):
        model.bind([x])
    with pytest.raises(UserError, match="output relu cannot be bound: it does not lie on simt"):
        model.bind([on_device(x)], [np.empty((3, 4), np.float32)])
