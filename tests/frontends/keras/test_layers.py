"""Layers against NumPy, written from Keras's documentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.keras.files import archive, functional, input_layer, layer, one, results

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def convolved(x: Any, w: Any, strides: int = 1) -> Any:
    """N×H×W×C by H×W×C×O, without padding."""
    rows = (x.shape[1] - w.shape[0]) // strides + 1
    columns = (x.shape[2] - w.shape[1]) // strides + 1
    made = np.zeros((x.shape[0], rows, columns, w.shape[3]), np.float32)
    for i in range(rows):
        for j in range(columns):
            top, left = i * strides, j * strides
            part = x[:, top : top + w.shape[0], left : left + w.shape[1]]
            made[:, i, j] = np.tensordot(part, w, 3)
    return made


X, IMAGE, SERIES = real(2, 5), real(2, 6, 7, 3), real(2, 4, 5)


def test_dense_and_embedding() -> None:
    w, b = real(5, 3), real(3)
    close(one("Dense", X, weights={"": [w, b]}, activation="tanh"), np.tanh(X @ w + b))
    table = real(9, 4)
    close(one("Embedding", np.array([[1, 8]], np.int32), weights={"": [table]}), table[[[1, 8]]])


def test_convolutions() -> None:
    w, b = real(3, 2, 3, 4), real(4)
    close(one("Conv2D", IMAGE, weights={"": [w, b]}), convolved(IMAGE, w) + b)
    # Six rows in steps of two need one row of padding, which goes behind.
    padded = np.pad(IMAGE, ((0, 0), (0, 1), (0, 0), (0, 0)))
    same = one("Conv2D", IMAGE, weights={"": [w]}, use_bias=False, padding="same", strides=[2, 2])
    close(same, convolved(np.pad(padded, ((0, 0), (0, 0), (0, 1), (0, 0))), w, 2))
    depth = real(3, 3, 3, 2)
    each = [convolved(IMAGE[..., c : c + 1], depth[:, :, c : c + 1, :]) for c in range(3)]
    found = one("DepthwiseConv2D", IMAGE, weights={"": [depth]}, use_bias=False)
    close(found, np.concatenate(each, -1))


def test_transposed_convolution() -> None:
    x, w = real(1, 3, 3, 2), real(2, 2, 4, 2)
    wanted = np.zeros((1, 6, 6, 4), np.float32)
    for i in range(3):
        for j in range(3):
            part = np.einsum("nc,hwoc->nhwo", x[:, i, j], w)
            wanted[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += part
    close(one("Conv2DTranspose", x, weights={"": [w]}, use_bias=False, strides=[2, 2]), wanted)


def test_pooling() -> None:
    blocks = IMAGE[:, :6, :6].reshape(2, 3, 2, 3, 2, 3)
    close(one("MaxPooling2D", IMAGE, pool_size=[2, 2]), blocks.max((2, 4)))
    close(one("AveragePooling2D", IMAGE, pool_size=[2, 2]), blocks.mean((2, 4)))
    close(one("GlobalAveragePooling2D", IMAGE), IMAGE.mean((1, 2)))
    # Padding does not count.
    rows = one("AveragePooling1D", SERIES[:, :3], pool_size=[2], strides=[2], padding="same")
    close(rows, np.stack([SERIES[:, :2].mean(1), SERIES[:, 2]], 1))


def test_normalisation() -> None:
    gamma, beta, mean, variance = real(3), real(3), real(3), np.abs(real(3))
    found = one("BatchNormalization", IMAGE, weights={"": [gamma, beta, mean, variance]})
    close(found, (IMAGE - mean) / np.sqrt(variance + 1e-3) * gamma + beta)
    scale, shift = real(5), real(5)
    centred = SERIES - SERIES.mean(-1, keepdims=True)
    wanted = centred / np.sqrt(SERIES.var(-1, keepdims=True) + 1e-3) * scale + shift
    close(one("LayerNormalization", SERIES, weights={"": [scale, shift]}), wanted)


@pytest.mark.parametrize("backwards", [False, True])
def test_lstm(backwards: bool) -> None:
    w, r, b = real(5, 12), real(3, 12), real(12)
    h = c = np.zeros((2, 3), np.float32)
    made = []
    for t in reversed(range(4)) if backwards else range(4):
        i, f, g, o = np.split(SERIES[:, t] @ w + h @ r + b, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        made.append(h)
    given: dict[str, Any] = {"weights": {"/cell": [w, r, b]}, "go_backwards": backwards}
    close(one("LSTM", SERIES, **given), h)
    close(one("LSTM", SERIES, return_sequences=True, **given), np.stack(made, 1))


@pytest.mark.parametrize("resets_after", [False, True])
def test_gru(resets_after: bool) -> None:
    w, r, b = real(5, 9), real(3, 9), real(2, 9)
    rows = b if resets_after else np.stack([b[0], 0 * b[1]])
    h = np.zeros((2, 3), np.float32)
    for t in range(4):
        xz, xr, xh = np.split(SERIES[:, t] @ w + rows[0], 3, -1)
        hz, hr, hh = np.split(h @ r + rows[1], 3, -1)
        z, reset = sigmoid(xz + hz), sigmoid(xr + hr)
        new = xh + reset * hh if resets_after else xh + (reset * h) @ r[:, 6:]
        h = z * h + (1 - z) * np.tanh(new)
    bias = b if resets_after else b[0]
    close(one("GRU", SERIES, weights={"/cell": [w, r, bias]}, reset_after=resets_after), h)
    if not resets_after:
        # As files say it that are older than the choice.
        close(one("GRU", SERIES, weights={"/cell": [w, r, bias]}), h)


def test_masks_keep_states() -> None:
    """Steps whose token is 0 leave the state as it was."""
    table, w, r = real(4, 5), real(5, 3), real(3, 3)
    tokens = np.array([[1, 0, 2], [3, 0, 0]], np.int32)
    h = np.zeros((2, 3), np.float32)
    for t in range(3):
        new = np.tanh(table[tokens[:, t]] @ w + h @ r)
        h = np.where(tokens[:, t, None] != 0, new, h)
    entries = [
        input_layer("x", 3, dtype="int32"),
        layer("Embedding", "e", "x", mask_zero=True),
        layer("SimpleRNN", "r", "e", units=3, use_bias=False),
    ]
    weights = {"layers/embedding": [table], "layers/simple_rnn/cell": [w, r]}
    close(results(archive(functional(entries, ["x"], ["r"]), weights), tokens)[0], h)


def test_attention_heads() -> None:
    kernels = {p: real(5, 2, 3) for p in ("query", "key", "value")}
    q, k, v = (np.einsum("ntd,dhs->nhts", SERIES, kernels[p]) for p in kernels)
    joined = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(3)) @ v
    out = real(2, 3, 5)
    weights = {f"/{p}_dense": [w] for p, w in kernels.items()} | {"/output_dense": [out]}
    found = {f"layers/multi_head_attention{p}": w for p, w in weights.items()}
    heads = layer("MultiHeadAttention", "it", "x", "x", num_heads=2, key_dim=3, use_bias=False)
    model = functional([input_layer("x", 4, 5), heads], ["x"], ["it"])
    close(results(archive(model, found), SERIES)[0], np.einsum("nhts,hsd->ntd", joined, out))


def test_shapes_and_merges() -> None:
    close(
        one("ZeroPadding2D", IMAGE, padding=[[1, 0], [0, 2]]),
        np.pad(IMAGE, [(0, 0), (1, 0), (0, 2), (0, 0)]),
    )
    close(one("Cropping1D", SERIES, cropping=[1, 1]), SERIES[:, 1:-1])
    close(one("UpSampling2D", IMAGE, size=[2, 1]), IMAGE.repeat(2, 1))
    close(one("Permute", IMAGE, dims=[3, 1, 2]), IMAGE.transpose(0, 3, 1, 2))
    close(one("Reshape", IMAGE, target_shape=[-1, 3]), IMAGE.reshape(2, -1, 3))
    close(one("RepeatVector", X, n=3), np.stack([X] * 3, 1))
    y = X[:, ::-1].copy()
    close(one("Average", X, y), (X + y) / 2)
    close(one("Concatenate", X, y, axis=1), np.concatenate([X, y], 1))
    close(one("Dot", X, y, axes=1), (X * y).sum(1, keepdims=True))


def test_activations() -> None:
    close(one("Activation", X, activation="hard_sigmoid"), np.clip(X / 6 + 0.5, 0, 1))
    close(one("Activation", X, activation="silu"), X * sigmoid(X))
    bounded = one("ReLU", X, max_value=0.5, negative_slope=0.1, threshold=0.2)
    close(bounded, np.minimum(np.where(X >= 0.2, X, 0.1 * (X - 0.2)), 0.5))
    close(one("Softmax", X), softmax(X))
    close(one("Dropout", X, rate=0.5), X)
