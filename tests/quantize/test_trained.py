"""Trained networks keep their accuracy: handwritten digits, by a network that is trained here.

The digits come from scikit-learn's wheel, of which only the file with them is read.
"""

from __future__ import annotations

import gzip
import io
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tests.models.wheels import model_bytes
from tilewright.frontends import read_model
from tilewright.graph import Module

torch: Any = pytest.importorskip("torch")

#: Samples to train with, and of those as many to calibrate with.
_TRAINED, _CALIBRATED = 1200, 256


class Digits(NamedTuple):
    images: Any
    labels: Any


@cache
def digits() -> Digits:
    packed = model_bytes("scikit_learn", "sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(io.BytesIO(gzip.decompress(packed)), delimiter=",")
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    images = (rows[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    return Digits(images, rows[:, -1].astype(np.int64))


@cache
def network() -> Module:
    images, labels = digits()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    nn = torch.nn
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    x, y = torch.tensor(images[:_TRAINED]), torch.tensor(labels[:_TRAINED])
    for _ in range(4):
        for part in torch.arange(_TRAINED).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[part]), y[part]).backward()
            optimizer.step()
    size = torch.export.Dim("n", min=1)
    program = torch.export.export(net.eval(), (x[:4],), dynamic_shapes=({0: size},))
    return read_model(program)


def scores(module: Module) -> Any:
    """Those of digits that were not trained with."""
    return tw.compile(module).run([digits().images[_TRAINED:]])[0]


@cache
def original_scores() -> Any:
    """Those of the network as it was trained."""
    return scores(network())


def accuracy(found: Any) -> float:
    """In percent, on digits that were not trained with."""
    return 100 * float((found.argmax(axis=1) == digits().labels[_TRAINED:]).mean())


def unseen_errors(module: Module) -> tuple[float, Any]:
    """The error of digits that were not trained with: that of all together, as `compare` has it,
    and of each relative to its own largest score."""
    ours, theirs = scores(module), original_scores()
    off, size = np.abs(ours - theirs).max(axis=1), np.abs(theirs).max(axis=1)
    return float(off.max() / size.max()), off / size


def test_the_network_has_learnt_something() -> None:
    assert accuracy(original_scores()) > 94


@pytest.mark.parametrize("method", ["mse", "minmax"])
def test_bytes_cost_half_a_point_at_most(method: str) -> None:
    q = tw.quantize(network(), digits().images[:_CALIBRATED], method=method)
    assert sum(r.precision == "int8" for r in q.report.layers) == 5, "depthwise ones too"
    assert accuracy(scores(q)) >= accuracy(original_scores()) - 0.5


@pytest.mark.parametrize(("weights", "points"), [("int8", 0.5), ("int4", 1.0)])
def test_weights_of_few_bits_cost_a_point_at_most(weights: str, points: float) -> None:
    found = scores(tw.quantize(network(), weights=weights))
    assert accuracy(found) >= accuracy(original_scores()) - points


def test_data_makes_four_bits_better() -> None:
    images = digits().images
    plain, by_data = (
        tw.quantize(
            network(),
            images[:_CALIBRATED],
            weights="int4",
            method=method,
            validation=images[_TRAINED:],
        )
        for method in ("mse", "gptq")
    )
    assert plain.report.error is not None and by_data.report.error is not None
    assert by_data.report.error.sqnr > plain.report.error.sqnr + 1
    assert accuracy(scores(by_data)) >= accuracy(original_scores()) - 1


@pytest.mark.parametrize("budget", [0.05, 0.02])
def test_a_budget_holds_on_digits_that_were_not_seen(budget: float) -> None:
    q = tw.quantize(network(), digits().images[:_CALIBRATED], budget=budget)
    together, each = unseen_errors(q)
    assert together <= budget and (each > budget).mean() < 0.01
