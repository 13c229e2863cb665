"""What is more than single operators: control flow, sizes, complex numbers, converters of users."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch.nets import check, require_close  # noqa: E402
from tilewright.frontends.torch import (  # noqa: E402
    TABLE,
    Node,
    register_converter,
    unregister_converter,
)

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_branches() -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

    for x in (X + 2, X - 2):
        check(function, x)
    check(function, X + 2, native=True)


def test_loops() -> None:
    scan, while_loop = (getattr(torch._higher_order_ops, k) for k in ("scan", "while_loop"))

    def doubled(x: Any) -> Any:
        return while_loop(lambda x: x.sum() < 100, lambda x: (x * 2,), (x,))

    def summed(x: Any) -> Any:
        return scan(lambda s, row: (s + row, s * row), torch.zeros(4), x)

    check(doubled, X + 2)
    check(summed, X)


def test_a_rotary_embedding_by_complex_numbers() -> None:
    angles = torch.outer(torch.arange(3.0), torch.tensor([1.0, 0.1]))

    def rotated(x: Any) -> Any:
        turns = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.reshape(3, 2, 2))
        return torch.view_as_real(pairs * turns).flatten(1)

    check(rotated, X)


def test_sizes_that_depend_on_data() -> None:
    check(lambda x: x[x > 0].sum() + x[x > 0.5].shape[0], X, native=True)


def test_one_program_for_all_sizes() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            rows, columns = x.shape
            flat = x.reshape(columns, rows).softmax(0)
            return (x @ flat)[: rows // 2 + 1] + rows * columns

    model = tw.compile(Net(), inputs=(torch.randn(4, 6),), shapes={"x": ["n", "m"]})
    for shape in ((2, 3), (3, 8), (5, 1)):
        x = torch.randn(shape)
        require_close(model.run([x]), Net()(x))


def test_adaptive_pooling_of_images_of_all_sizes() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            pool = torch.nn.functional
            return pool.adaptive_avg_pool2d(x, (3, 2)), pool.adaptive_max_pool2d(x, (2, 3))

    model = tw.compile(Net(), inputs=(torch.randn(1, 2, 8, 9),), shapes={"x": [1, 2, "h", "w"]})
    for shape in ((8, 9), (5, 7), (12, 6)):
        x = torch.randn(1, 2, *shape)
        require_close(model.run([x]), Net()(x))


def test_a_converter_of_the_user() -> None:
    schema = "(Tensor x, float more) -> Tensor"

    @torch.library.custom_op("tilewright_tests::twice_and", mutates_args=(), schema=schema)
    def twice_and(x: Any, more: float) -> Any:
        return x * 2 + more

    @twice_and.register_fake
    def _(x: Any, more: float) -> Any:
        return torch.empty_like(x)

    def convert(n: Node) -> Any:
        x = n.tensor("x")
        return n.builder.add(n.builder.add(x, x), n.like(n["more"], x))

    def function(x: Any) -> Any:
        return torch.ops.tilewright_tests.twice_and(x, 3.0) - 1

    with pytest.raises(tw.UserError, match="does not know") as error:
        check(function, X)
    assert "tilewright_tests::twice_and" in error.value.listing
    register_converter("tilewright_tests::twice_and", convert)
    try:
        check(function, X)
    finally:
        unregister_converter("tilewright_tests::twice_and")


def test_core_operators_have_converters() -> None:
    """All operators that torch calls core, but for random ones, derivatives, and a few."""
    served = {name.partition(".")[0] for _, name in TABLE.names()}
    core = set[str]()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", list)():
            found = getattr(packet, overload)
            seeded = torch.Tag.nondeterministic_seeded in found.tags
            if torch.Tag.core in found.tags and not seeded and "backward" not in name:
                core.add(name)
    left_out = {"resize", "resize_"}
    checks = {"sym_size", "sym_numel", "sym_stride", "sym_storage_offset", "sym_is_contiguous"}
    assert core - served - left_out - checks == set()
