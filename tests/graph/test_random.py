"""Random numbers: the generator by published numbers, distributions, operators by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.harness import check, natively
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder, find_op
from tilewright.graph.ops.numeric.random import splitmix
from tilewright.support.errors import UserError

KEY = np.array([0x13198A2E, 0x03707344], "u4")


def test_splitmix() -> None:
    seed = 1234567
    words = splitmix(np.arange(5, dtype=np.uint64), np.array([seed, 0], np.uint32))
    assert [int(a) << 32 | int(b) for a, b in zip(*words, strict=True)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_uniform_and_normal() -> None:
    check("random_uniform", [KEY], shape=[3, 70], low=-2.0, high=3.0, symbolic=False)
    check("random_normal", [KEY], shape=[3, 70], mean=5.0, scale=2.0, symbolic=False)
    for dtype in ("f16", "f64"):
        check_definition("random_uniform", [KEY], shape=[9], dtype=dtype, symbolic=False)
        check_definition("random_normal", [KEY], shape=[9], dtype=dtype, symbolic=False, atol=1e-3)
    check_definition("random_uniform", [KEY], shape=[0, 3], symbolic=False)


def test_distributions() -> None:
    (uniform,) = find_op("random_uniform").evaluate(
        [KEY], find_op("random_uniform").bind([KEY], {"shape": [50000]})[1]
    )
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(uniform.var() - 1 / 12) < 0.002
    assert uniform.min() >= 0
    assert uniform.max() < 1
    (normal,) = find_op("random_normal").evaluate(
        [KEY], find_op("random_normal").bind([KEY], {"shape": [50000]})[1]
    )
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02


def test_choices() -> None:
    p = np.linspace(0, 1, 60).astype("f4").reshape(3, 20)
    result = check("bernoulli", [KEY, p], symbolic=False)[0]
    assert result[0, 0] == 0
    check_definition("bernoulli", [KEY, p], dtype="bool")
    logits = np.log(np.array([[0.1, 0.6, 0.3], [0.5, 0.5, 1e-30]], "f4"))
    drawn = check("multinomial", [KEY, logits], samples=400, symbolic=False)[0]
    shares = [np.bincount(row, minlength=3) / 400 for row in drawn]
    np.testing.assert_allclose(shares, [[0.1, 0.6, 0.3], [0.5, 0.5, 0]], atol=0.08)
    check_definition("multinomial", [KEY, logits], samples=4, dtype="i64")


def test_dropout() -> None:
    x = np.ones((4, 60), "f4")
    y, kept = check("dropout_training", [KEY, x, np.float32(0.25)], symbolic=False)
    assert 0.65 < kept.mean() < 0.85
    np.testing.assert_allclose(y, kept / 0.75)
    check_definition("dropout_training", [KEY, x.astype("f2"), np.float32(0.5)], symbolic=False)
    check_definition(
        "dropout_training", [KEY, x[:, :5], np.float32(0)], expected=(x[:, :5], x[:, :5] > 0)
    )


def test_keys_differ() -> None:
    key = find_op("random_key")
    assert not key.pure
    first, second = natively(key, [], {}), natively(key, [], {})
    assert first[0].dtype == np.uint32
    assert not np.array_equal(first[0], second[0])
    with pytest.raises(UserError, match="is no key"):
        b = Builder()
        b.random_uniform(b.input("k", "i64", (2,)), shape=[3])
