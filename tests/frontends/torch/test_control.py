"""Branches, loops, scans and maps: natively, in archives, and behind torch.compile."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch.nets import Call, check, require_close  # noqa: E402
from tilewright.torch_backend import tilewright  # noqa: E402

higher: Any = torch._higher_order_ops
X = torch.linspace(-1, 1, 12).reshape(3, 4)
WEIGHT = torch.linspace(0, 1, 16).reshape(4, 4)


def chosen(x: Any) -> Any:
    """Branches that see a weight, and give several results."""
    return torch.cond(
        x.sum() > 0, lambda x: (x + 1, x @ WEIGHT), lambda x: (x * 2, (x - 1) @ WEIGHT), (x,)
    )


def counted(x: Any) -> Any:
    """A loop with a counter beside a tensor, and a weight from outside."""

    def go_on(k: Any, y: Any) -> Any:
        return (k < 5) & (y.abs().sum() < 1000)

    def trip(k: Any, y: Any) -> Any:
        return k + 1, y @ WEIGHT + x

    return higher.while_loop(go_on, trip, (torch.zeros((), dtype=torch.int64), x.clone()))


def scanned(x: Any) -> Any:
    """A scan with a branch inside."""

    def step(total: Any, row: Any) -> Any:
        grown = torch.cond(row.sum() > 0, lambda r: r * 2, lambda r: r + 10, (row,))
        return total + grown, total * row

    return higher.scan(step, torch.zeros(4), x)


def scanned_backwards(x: Any) -> Any:
    return higher.scan(lambda c, r: (c * 0.5 + r, c + r), torch.ones(3), x, dim=1, reverse=True)


def mapped(x: Any) -> Any:
    return higher.map(lambda row, scale: (row * scale).cumsum(0), x, WEIGHT[1])


def combined(x: Any) -> Any:
    return higher.associative_scan(lambda a, b: a * 0.5 + b, x, dim=0, combine_mode="generic")


PROGRAMS: dict[str, Callable[..., Any]] = {
    "branches": chosen,
    "a loop": counted,
    "a scan": scanned,
    "a scan backwards": scanned_backwards,
    "a map": mapped,
    "an associative scan": combined,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_natively(name: str) -> None:
    check(PROGRAMS[name], X + 0.5, native=True)
    check(PROGRAMS[name], X - 0.5)


# What torch exports of an associative scan is taken apart before it can be archived.
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "an associative scan"])
def test_in_an_archive(name: str) -> None:
    made = io.BytesIO()
    torch.export.save(torch.export.export(Call(PROGRAMS[name]), (X,)), made)
    model = tw.compile(made.getvalue())
    for x in (X + 0.5, X - 0.5):
        require_close(model.run([x]), PROGRAMS[name](x))


@pytest.mark.parametrize("name", ["branches", "a loop", "a map"])
def test_behind_torch_compile(name: str) -> None:
    torch._dynamo.reset()
    fast = torch.compile(PROGRAMS[name], backend=tilewright)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="tilewright runs a graph eagerly")
        for x in (X + 0.5, X - 0.5):
            require_close(torch.utils._pytree.tree_leaves(fast(x)), PROGRAMS[name](x))
    torch._dynamo.reset()


def test_a_branch_on_sizes_that_are_not_known() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            rows = x.shape[0]
            small = torch.cond(rows > 4, lambda x: x + 1, lambda x: x * 3, (x,))
            return torch.cond(rows % 2 == 0, lambda x: x * 5, lambda x: x - 1, (small,))

    model = tw.compile(Net(), inputs=(torch.ones(6, 2),), shapes={"x": ["n", 2]})
    for rows in (3, 4, 5, 8):
        x = torch.full((rows, 2), 2.0)
        require_close(model.run([x]), Net()(x))
