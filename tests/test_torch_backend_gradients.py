"""Gradients behind torch.compile: the forward part gives what torch's derivatives are made of."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilewright.torch_backend import tilewright  # noqa: E402

F = torch.nn.functional
G = torch.Generator().manual_seed(0)
HEADS = torch.randn(2, 3, 5, 8, generator=G)
MASK = torch.randn(5, 5, generator=G)
TABLE = torch.randn(9, 5, generator=G)
IDS = torch.tensor([[1, 2, 4], [4, 3, 2]])
STARTS = torch.tensor([0, 2])
SQUARE = torch.randn(3, 4, 4, generator=G) + 4 * torch.eye(4)
IMAGE = torch.randn(2, 4, 8, 7, generator=G)
ATTENTION = F.scaled_dot_product_attention

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "attention": (lambda x: ATTENTION(x, x * 2, x + 1), HEADS),
    "attention with a mask": (lambda x: ATTENTION(x, x * 2, x + 1, attn_mask=MASK), HEADS),
    "causal attention": (lambda x: ATTENTION(x, x * 2, x + 1, is_causal=True), HEADS),
    "attention with its own scale": (lambda x: ATTENTION(x, x, x, scale=0.25), HEADS),
    "means of bags": (lambda w: F.embedding_bag(IDS, w), TABLE),
    "greatest of bags": (lambda w: F.embedding_bag(IDS, w, mode="max"), TABLE),
    "bags of other sizes": (
        lambda w: F.embedding_bag(IDS.flatten(), w, STARTS, mode="mean", padding_idx=4),
        TABLE,
    ),
    "greatest of bags with padding": (
        lambda w: F.embedding_bag(IDS.flatten(), w, STARTS, mode="max", padding_idx=4),
        TABLE,
    ),
    "determinants": (torch.linalg.det, SQUARE),
    "determinants of transposed matrices": (lambda a: torch.linalg.det(a.mT), SQUARE),
    "logarithms of determinants": (lambda a: torch.linalg.slogdet(a)[1], SQUARE),
    "systems": (lambda a: torch.linalg.solve(a, a[..., :2] * 2), SQUARE),
    "checks that are kept in order": (torch.linalg.inv, SQUARE),
    "norms by groups": (lambda x: F.group_norm(x, 2), IMAGE),
    "norms by batches that were seen": (
        lambda x: F.batch_norm(x, torch.ones(4), torch.full((4,), 2.0)),
        IMAGE,
    ),
    "places of the greatest": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
}


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Any) -> Any:
    return torch.compile(function, backend=tilewright, options={"threads": 1})


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    function, given = CASES[name]
    x, y = (given.clone().requires_grad_() for _ in range(2))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="tilewright runs a graph eagerly")
        made, wanted = compiled(function)(x), function(y)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-4)
    for result in (made, wanted):
        (result * wanted.detach().sin()).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-4)


def test_results_lie_in_memory_as_torch_expects() -> None:
    def function(x: Any) -> Any:
        return (x * 2).permute(0, 2, 3, 1), x.to(memory_format=torch.channels_last) + 1, x.mT + 1

    with torch.no_grad():
        for made, wanted in zip(compiled(function)(IMAGE), function(IMAGE), strict=True):
            torch.testing.assert_close(made, wanted)
            assert made.stride() == wanted.stride()


def test_a_layer_of_an_encoder_is_one_operator_of_torch() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    for options in ({}, {"norm_first": True, "activation": "gelu"}):
        net = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options).eval()
        fast = compiled(copy.deepcopy(net))
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("error", message="tilewright runs a graph eagerly")
            for more in ({}, {"src_key_padding_mask": padding}):
                torch.testing.assert_close(fast(x, **more), net(x, **more), rtol=1e-4, atol=1e-5)


def test_attention_of_several_heads_is_one_operator_of_torch() -> None:
    torch.manual_seed(0)
    net, x = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    hidden = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)

    def function(x: Any, **more: Any) -> Any:
        return net(x, x, x, **more)

    fast = compiled(function)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="tilewright runs a graph eagerly")
        for more in ({}, {"attn_mask": hidden}, {"average_attn_weights": False}):
            for made, wanted in zip(fast(x, **more), function(x, **more), strict=True):
                torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)
        made, none = fast(x, need_weights=False)
        assert none is None
        torch.testing.assert_close(made, function(x)[0], rtol=1e-4, atol=1e-5)
