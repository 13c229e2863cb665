"""Recurrent networks: operators of the graph, not unrolled steps, held against torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch.nets import Call, check, require_close  # noqa: E402
from tilewright.frontends import from_torch  # noqa: E402
from tilewright.frontends.torch import Node  # noqa: E402
from tilewright.frontends.torch.importer import Importer  # noqa: E402
from tilewright.frontends.torch.table import find_converter  # noqa: E402
from tilewright.graph import Call as GraphCall  # noqa: E402

# torch takes its own lists of weights for state that forward changes.
pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes self._flat_weights")

X = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))

KINDS = {
    "lstm": (torch.nn.LSTM, {}),
    "gru": (torch.nn.GRU, {}),
    "rnn": (torch.nn.RNN, {}),
    "rnn of relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "layers": {"num_layers": 3},
    "both directions": {"bidirectional": True, "num_layers": 2},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False, "bidirectional": True},
    "dropout that does nothing": {"num_layers": 2, "dropout": 0.5},
}


def network(kind: str, **options: Any) -> Any:
    torch.manual_seed(1)
    cls, more = KINDS[kind]
    return cls(4, 6, **more, **options).eval()


def operators(net: Any, *inputs: Any) -> list[str]:
    """The operators of the graph of a network."""
    body = from_torch(net, inputs).main.body
    return [b.expr.op.name for b in body if isinstance(b.expr, GraphCall)]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_network(kind: str, options: str) -> None:
    net = network(kind, **OPTIONS[options])
    check(net, X)
    layers, name = OPTIONS[options].get("num_layers", 1), kind.split()[0]
    assert operators(net, X).count(name) == layers


@pytest.mark.parametrize("kind", KINDS)
def test_native(kind: str) -> None:
    check(network(kind, num_layers=2, bidirectional=True), X, native=True)


def test_first_states_are_given() -> None:
    g = torch.Generator().manual_seed(2)
    h, c = (torch.randn(4, 3, 6, generator=g) for _ in range(2))
    options = {"num_layers": 2, "bidirectional": True}
    lstm, gru = network("lstm", **options), network("gru", **options)
    check(lambda x, h, c: lstm(x, (h, c)), X, h, c)
    check(lambda x, h: gru(x, h), X, h)


def test_an_input_without_batches() -> None:
    check(network("lstm"), X[:, 0])


def test_projections_are_loops() -> None:
    for options in ({}, {"bidirectional": True, "num_layers": 2, "batch_first": True}):
        net = network("lstm", proj_size=2, **options)
        check(net, X)
    check(network("lstm", proj_size=2, bias=False), X, native=True)


def test_one_program_for_all_batches() -> None:
    # torch itself fixes how many steps there are.
    net = network("lstm", batch_first=True, bidirectional=True)
    model = tw.compile(net, inputs=(X,), shapes={"input": ["n", 3, 4]})
    for batch in (1, 2, 5):
        x = torch.randn(batch, 3, 4)
        with torch.no_grad():
            require_close(model.run([x]), net(x))


def test_networks_are_not_taken_apart_where_other_operators_are() -> None:
    net = network("gru")

    def function(x: Any) -> Any:
        y, _ = net(x)
        # What has no converter is taken apart, and brings the whole program with it.
        return torch.nn.functional.cosine_similarity(y, y * 2, -1)

    check(function, X)
    assert operators(Call(function), X).count("gru") == 1


# ---- what is refused ----------------------------------------------------------------------------


def test_elements_that_are_dropped_at_random_are_refused() -> None:
    net = network("lstm", num_layers=2, dropout=0.5).train()
    with pytest.raises(tw.UserError, match="at random between its layers") as error:
        tw.compile(net, inputs=(X,))
    assert ".eval()" in error.value.remedy


def test_packed_sequences_are_refused() -> None:
    x = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 4), torch.ones(1, 4)])
    with pytest.raises(tw.UserError, match="packed sequence") as error:
        tw.compile(network("gru"), inputs=(x,))
    assert "padded" in error.value.remedy
    with pytest.raises(tw.UserError, match="gru of a packed sequence"):
        convert = find_converter("aten", "gru.data")
        assert convert is not None
        convert(Node(Importer(), "gru.data", {}, {}, None))
