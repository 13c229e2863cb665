"""Families of operators, converted and held against torch's own answers.

The references of graph operators answer: their native forms are held against them elsewhere. Each
family also runs natively once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.nets import check  # noqa: E402
from tilewright.ir import Var, const  # noqa: E402
from tilewright.support.errors import UserError  # noqa: E402

F = torch.nn.functional
ATTENTION = F.scaled_dot_product_attention
G = torch.Generator().manual_seed(0)
X = torch.randn(2, 3, 4, generator=G)
Y = torch.randn(3, 1, generator=G)
I = torch.randint(-9, 9, (2, 3), generator=G)  # noqa: E741
B = torch.tensor([[True, False, True], [False, False, True]])
IMAGE = torch.randn(2, 4, 9, 8, generator=G)
SQUARE = torch.randn(4, 4, generator=G) + 4 * torch.eye(4)
PLACES = torch.tensor([[0, 2, 1], [1, 1, 0]])
EVEN = PLACES % 2


def segments(x: Any, kind: str, **options: Any) -> Any:
    """Reductions of segments along the first axis, one of which is empty."""
    return torch.segment_reduce(x, kind, lengths=torch.tensor([1, 0, 1]), axis=0, **options)


CASES: dict[str, tuple[Callable[..., Any], ...]] = {
    "arithmetic": (
        lambda: check(lambda x, y: (x + y, x - 2, 3 - x, x * y, x / y, x // 2, x % 3, -x), X, Y),
        lambda: check(lambda i: (i + 1.5, i / 2, i // 2, i % 4, i**2, i.abs(), i.sign()), I),
        lambda: check(lambda b, i: (b + b, b * b, b & (i > 0), ~b, b.sum(), b + 1, i * b), B, I),
        lambda: check(lambda x, i: (x[0, 0, :3] + i, torch.where(i > 0, i, 0.5)), X, I),
        lambda: check(lambda x: (x.double() + 1, x.half() * 2, x.bfloat16().float(), x.int()), X),
        lambda: check(lambda i: (i << 1, i >> 1, i ^ 3, i | 4, torch.clamp(i, -2, 3)), I),
    ),
    "numbers that are no numbers": (
        lambda: check(
            lambda x: (x.nan_to_num(), torch.maximum(x, -x), x.amax(), torch.fmax(x, -x)),
            torch.tensor([1.0, float("nan"), float("inf"), -3.0]),
        ),
    ),
    "shapes": (
        lambda: check(lambda x: (x.permute(2, 0, 1), x.flatten(1), x.unflatten(2, (2, 2))), X),
        lambda: check(lambda x: (x[:, 1:, ::2], x[..., -1], x[1], x[:, None], x.unbind(1)), X),
        lambda: check(lambda x: (x.split(2, -1), x.chunk(2, 1), x.tile(2, 1, 1), x.flip(0, 2)), X),
        lambda: check(lambda x: (torch.cat([x, x], 1), torch.stack([x, x], -1), x.roll(1, -1)), X),
        lambda: check(lambda x: (x.expand(5, 2, 3, 4), x.diagonal(0, 1, 2), x.unfold(2, 2, 1)), X),
        lambda: check(lambda x: x.clone().resize_(2, 5), X),
        lambda: check(lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 1), "reflect"), x.tril(-1)), X),
        lambda: check(lambda x: (torch.arange(5), torch.linspace(0, 1, 7), torch.ones_like(x)), X),
    ),
    "empty and without dimensions": (
        lambda: check(lambda x: (x.sum(), x[:0], torch.cat([x[:0], x]), x[:0].sum(0)), X),
        lambda: check(lambda x: (x + 1, x.sum(0), x.softmax(0), x.sort(0), x.view(1)), X[0, 0, 0]),
    ),
    "reductions": (
        lambda: check(lambda x: (x.sum(), x.sum((0, 2)), x.mean(-1, keepdim=True), x.prod(1)), X),
        lambda: check(lambda x: (x.max(1), x.min(-1, keepdim=True), x.argmax(), x.amin((0, 1))), X),
        lambda: check(lambda x: (x.var(), x.std(1), torch.var_mean(x, 2), x.logsumexp((0, 1))), X),
        lambda: check(lambda b, i: (b.any(), b.all(1), i.sum(), i.max(), i.prod(0)), B, I),
        lambda: check(lambda x: (x.cumsum(1), x.cumprod(-1), x.cummax(2), x.logcumsumexp(0)), X),
        lambda: check(
            lambda x: (x.sort(-1), x.topk(2), x.median(1), x.argsort(descending=True)), X
        ),
        lambda: check(lambda x: (x.dist(-x, 3), x.norm(1, 0), x.softmax(-1), x.log_softmax(0)), X),
    ),
    "indices": (
        lambda: check(lambda x, p: (x[:, p], x[p, p], x[p, :, 1]), X, EVEN),
        lambda: check(lambda x, p: x.gather(1, p[..., None]), X, PLACES),
        lambda: check(lambda x, i: (x[x > 0], x.nonzero(), x.masked_select(x < 0), i), X, I),
        lambda: check(lambda i, p: (i.scatter(1, p, 7), i.scatter_add(1, p, i)), I, PLACES),
        lambda: check(
            lambda i, p: i.scatter_reduce(1, p, i, "amax", include_self=False), I, PLACES
        ),
        lambda: check(lambda i, p: torch.index_put(i, (p[0], p[1]), i[0, 0], True), I, EVEN),
        lambda: check(lambda i, b: (i.masked_fill(b, 0), i.index_select(1, i[0] * 0)), I, B),
        lambda: check(lambda w, p: F.embedding(p, w), X[0], PLACES),
        lambda: check(lambda w, p: F.embedding_bag(p, w), X[0], PLACES),
        lambda: check(lambda i: (i.unique(), i.mode(1), i.unique_consecutive()), I),
        lambda: check(lambda x: [segments(x, k) for k in ("sum", "mean", "max", "min", "prod")], X),
        lambda: check(lambda x: segments(x, "mean", initial=2), X),
        lambda: check(
            lambda x: torch.segment_reduce(x, "sum", offsets=torch.tensor([[0, 2, 3]] * 2), axis=1),
            X,
        ),
    ),
    "products": (
        lambda: check(lambda x, y: (x @ x.mT, x @ torch.ones(4), torch.einsum("bij->ji", x)), X, Y),
        lambda: check(lambda a, i: (torch.addmm(a, a, a, beta=2, alpha=3), i @ i.T), SQUARE, I),
        lambda: check(
            lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), X[:, None]
        ),
        lambda: check(lambda a: (a.inverse(), torch.linalg.det(a), torch.linalg.qr(a)), SQUARE),
        lambda: check(lambda a: torch.linalg.solve(a, a[:, :2]), SQUARE),
        lambda: check(lambda a: torch.linalg.cholesky(a @ a.T), SQUARE),
        lambda: check(lambda a: torch.linalg.pinv(a, hermitian=True), SQUARE),
        lambda: check(lambda x: (torch.linalg.pinv(x), torch.linalg.svdvals(x)), X[0]),
        lambda: check(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=5), X),
    ),
    "images": (
        lambda: check(lambda x: F.conv2d(x, torch.ones(6, 2, 3, 3), stride=2, groups=2), IMAGE),
        lambda: check(lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 3, 3), stride=2), IMAGE),
        lambda: check(
            lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, ceil_mode=True)), IMAGE
        ),
        lambda: check(lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE),
        lambda: check(
            lambda x: (F.adaptive_avg_pool2d(x, (3, 1)), F.adaptive_max_pool2d(x, 3)), IMAGE
        ),
        lambda: check(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), IMAGE),
        lambda: check(lambda x: F.interpolate(x, (5, 13), mode="bilinear"), IMAGE),
        lambda: check(
            lambda x: F.interpolate(x, (12, 6), mode="bicubic", align_corners=True), IMAGE
        ),
        lambda: check(lambda x: F.grid_sample(x, torch.zeros(2, 3, 3, 2) + 0.3), IMAGE),
        lambda: check(lambda x: (F.pixel_shuffle(x, 2), F.unfold(x, 3, stride=2)), IMAGE),
        lambda: check(lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), IMAGE),
    ),
    "normalisation and activations": (
        lambda: check(lambda x: (F.layer_norm(x, (4,)), F.group_norm(x, 3), F.instance_norm(x)), X),
        lambda: check(lambda x: (F.gelu(x), F.silu(x), F.elu(x), F.mish(x), F.hardswish(x)), X),
        lambda: check(
            lambda x: (F.softplus(x, 2, 1), F.leaky_relu(x), F.glu(x), F.celu(x, 2.0)), X
        ),
        lambda: check(lambda x: F.rms_norm(x, (4,)), X),
    ),
    "losses": (
        # Labels end with the first -1.
        lambda: check(
            lambda x, t: F.multilabel_margin_loss(x, t),
            X[0],
            torch.tensor([[1, -1, 0, 0], [2, 0, -1, 0], [3, 1, 0, 2]]),
        ),
    ),
    "histograms": (
        lambda: check(lambda x: torch.histogram(x, 5), X),
        lambda: check(
            lambda x: torch.histogram(x, 4, range=(-1.0, 1.0), weight=x.abs(), density=True), X
        ),
        lambda: check(lambda x: torch.histogram(x, torch.tensor([-2.0, -0.5, 0.2, 0.9])), X),
        lambda: check(lambda x: torch.histogramdd(x.reshape(-1, 2), [3, 4]), X),
        lambda: check(lambda x: torch.histogram(x * 0 + 2, 3), X),
    ),
    "special functions": (
        lambda: check(lambda x: (x.erf(), x.lgamma(), x.digamma(), torch.special.i0e(x)), X),
        lambda: check(lambda x: (torch.special.bessel_j0(x), (x / 9).erfinv(), x.erfc()), X),
    ),
}


@pytest.mark.parametrize("family", CASES)
def test_family(family: str) -> None:
    for case in CASES[family]:
        case()


NATIVE: dict[str, Callable[[], None]] = {
    "elements": lambda: check(
        lambda x, i: (x[0, 0, :3] * i + 1, i // 2, torch.where(i > 0, i, 0.5)), X, I, native=True
    ),
    "order": lambda: check(lambda x: (x.max(1), x.sort(-1), x.cumsum(0)), X, native=True),
    "indices": lambda: check(lambda x, p: (x[p, p], x[x > 0]), X, EVEN, native=True),
    "products": lambda: check(
        lambda x: ATTENTION(x, x, x, is_causal=True), X[:, None], native=True
    ),
    "systems": lambda: check(lambda a: torch.linalg.solve(a, a[:, :2]), SQUARE, native=True),
}


@pytest.mark.parametrize("family", NATIVE)
def test_native(family: str) -> None:
    NATIVE[family]()


def test_sizes_that_decide_on_the_graph_must_be_known() -> None:
    from tilewright.frontends.torch.node import known_size

    assert known_size(const(3) + 4) == 7
    with pytest.raises(UserError, match="the size n must be known"):
        known_size(Var("n"))
