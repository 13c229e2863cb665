"""Networks, and how compiled ones are held against torch's own answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontends import from_torch
from tilewright.graph import evaluate, verify

torch: Any = pytest.importorskip("torch")
pytree = torch.utils._pytree


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*args)


class Block(torch.nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + x)


class SmallResnet(torch.nn.Module):
    """A network of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.pool = torch.nn.MaxPool2d(2)
        self.blocks = torch.nn.Sequential(Block(8), Block(8))
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.pool(self.stem(x))).mean((2, 3)))


def leaves(result: Any) -> list[Any]:
    """All tensors of a result, in the order of its tree."""
    return [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def require_close(given: Sequence[Any], wanted: Any) -> None:
    """Hold arrays against tensors: shapes, element types and elements."""
    expected = leaves(wanted)
    assert len(given) == len(expected)
    for array, tensor in zip(given, expected, strict=True):
        found = array if isinstance(array, torch.Tensor) else torch.as_tensor(np.asarray(array))
        assert found.dtype == tensor.dtype
        torch.testing.assert_close(found, tensor, rtol=1e-4, atol=1e-5, equal_nan=True)


def check(function: Callable[..., Any], *inputs: Any, native: bool = False) -> None:
    """Hold a function, converted, against itself: by references, or compiled if `native`."""
    net = function if isinstance(function, torch.nn.Module) else Call(function)
    with torch.no_grad():
        wanted = net(*inputs)
    if native:
        require_close(tw.compile(net, inputs=inputs).run(list(inputs)), wanted)
        return
    module = from_torch(net, inputs)
    verify(module)
    require_close(evaluate(module, [x.numpy() for x in inputs]), wanted)
