"""Small models of every layer, built with Keras itself: a name, and what makes the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def cases(keras: Any) -> dict[str, Callable[[], Any]]:
    """Models by name; each is built when it is asked for."""
    L, Input, Model = keras.layers, keras.Input, keras.Model
    found: dict[str, Callable[[], Any]] = {}

    def one(name: str, layer: Callable[[], Any], *shapes: Any, dtype: str = "float32") -> None:
        def build() -> Any:
            inputs = [Input(s, name=f"in{k}", dtype=dtype) for k, s in enumerate(shapes)]
            return Model(inputs, layer()(inputs if len(inputs) > 1 else inputs[0]))

        found[name] = build

    image, row, series, volume = (9, 8, 6), (10, 4), (7, 5), (5, 6, 4, 3)
    one("dense", lambda: L.Dense(3, activation="relu"), (5,))
    one("dense_on_series", lambda: L.Dense(3, use_bias=False), series)
    one("einsum_dense", lambda: L.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e"), series)
    one("conv1d", lambda: L.Conv1D(4, 3, strides=2, padding="same"), row)
    one("conv1d_causal", lambda: L.Conv1D(4, 3, padding="causal", dilation_rate=2), row)
    one("conv2d", lambda: L.Conv2D(4, (3, 2), padding="same", activation="tanh"), image)
    one("conv2d_strided", lambda: L.Conv2D(4, 3, strides=(2, 1), padding="same"), image)
    one("conv2d_dilated", lambda: L.Conv2D(4, 3, dilation_rate=2), image)
    one("conv2d_groups", lambda: L.Conv2D(6, 3, groups=3, use_bias=False), image)
    one("conv3d", lambda: L.Conv3D(2, 2, strides=2, padding="same"), volume)
    one("depthwise2d", lambda: L.DepthwiseConv2D(3, depth_multiplier=2, padding="same"), image)
    one("depthwise1d", lambda: L.DepthwiseConv1D(3, strides=2), row)
    one("separable2d", lambda: L.SeparableConv2D(5, 3, depth_multiplier=2, strides=2), image)
    one("separable1d", lambda: L.SeparableConv1D(5, 3, padding="same"), row)
    for padding in ("same", "valid"):
        for k, s, o in ((3, 2, None), (2, 2, None), (1, 2, None), (4, 3, None), (3, 2, 1)):
            one(
                f"conv2d_transpose_{padding}_{k}_{s}_{o}",
                lambda p=padding, k=k, s=s, o=o: L.Conv2DTranspose(
                    4, k, strides=s, padding=p, output_padding=o
                ),
                image,
            )
    one("conv1d_transpose", lambda: L.Conv1DTranspose(3, 4, strides=2, padding="same"), row)
    one("conv3d_transpose", lambda: L.Conv3DTranspose(3, 2, strides=2), volume)
    for rank, shape in ((1, row), (2, image), (3, volume)):
        for name in ("MaxPooling", "AveragePooling"):
            kind = getattr(L, f"{name}{rank}D")
            one(f"{name}{rank}_same", lambda kind=kind: kind(3, 2, padding="same"), shape)
            one(f"{name}{rank}", lambda kind=kind: kind(2), shape)
        for name in ("GlobalMaxPooling", "GlobalAveragePooling"):
            kind = getattr(L, f"{name}{rank}D")
            one(f"{name}{rank}", lambda kind=kind: kind(), shape)
            one(f"{name}{rank}_keep", lambda kind=kind: kind(keepdims=True), shape)
        one(f"padding{rank}", lambda r=rank: getattr(L, f"ZeroPadding{r}D")(2), shape)
        one(f"cropping{rank}", lambda r=rank: getattr(L, f"Cropping{r}D")(1), shape)
        one(f"up_sampling{rank}", lambda r=rank: getattr(L, f"UpSampling{r}D")(2), shape)
    one("padding_pairs", lambda: L.ZeroPadding2D(((1, 2), (0, 3))), image)
    one("cropping_pairs", lambda: L.Cropping2D(((1, 2), (0, 3))), image)
    one("up_bilinear", lambda: L.UpSampling2D((2, 3), interpolation="bilinear"), image)
    one("up_bicubic", lambda: L.UpSampling2D(2, interpolation="bicubic"), image)
    one("batch_norm", lambda: L.BatchNormalization(), image)
    one("batch_norm_plain", lambda: L.BatchNormalization(scale=False, center=False), series)
    one("batch_norm_axis", lambda: L.BatchNormalization(axis=1), image)
    one("layer_norm", lambda: L.LayerNormalization(), series)
    one("layer_norm_axes", lambda: L.LayerNormalization(axis=[1, 2]), series)
    one("layer_norm_first", lambda: L.LayerNormalization(axis=1, center=False), series)
    one("group_norm", lambda: L.GroupNormalization(3), image)
    one("group_norm_instance", lambda: L.GroupNormalization(-1), image)
    one("unit_norm", lambda: L.UnitNormalization(), series)
    one("normalization", lambda: L.Normalization(mean=[1.0] * 5, variance=[2.0] * 5), series)
    one("rescaling", lambda: L.Rescaling(1 / 127.5, -1.0), image)
    one("resizing", lambda: L.Resizing(5, 11), image)
    one("resizing_nearest", lambda: L.Resizing(5, 11, interpolation="nearest"), image)
    one("center_crop", lambda: L.CenterCrop(4, 5), image)
    one("flatten", lambda: L.Flatten(), image)
    one("reshape", lambda: L.Reshape((3, -1)), (6, 4))
    one("permute", lambda: L.Permute((3, 1, 2)), image)
    one("repeat_vector", lambda: L.RepeatVector(4), (5,))
    for name in ("dropout", "spatial_dropout2d", "gaussian_noise"):
        kind = {
            "dropout": lambda: L.Dropout(0.5),
            "spatial_dropout2d": lambda: L.SpatialDropout2D(0.5),
            "gaussian_noise": lambda: L.GaussianNoise(0.5),
        }[name]
        one(name, kind, image)
    for name in (
        "celu elu exponential gelu hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid "
        "log_softmax mish relu relu6 selu sigmoid silu softmax softplus softsign tanh soft_shrink "
        "hard_shrink tanh_shrink squareplus sparse_plus sparse_sigmoid sparsemax glu"
    ).split():
        if hasattr(keras.activations, name):
            one(f"activation_{name}", lambda a=name: L.Activation(a), (4, 6))
    one("relu_layer", lambda: L.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.2), series)
    one("relu6_layer", lambda: L.ReLU(6.0), series)
    one("leaky_relu_layer", lambda: L.LeakyReLU(0.2), series)
    one("prelu", lambda: L.PReLU(shared_axes=[1]), series)
    one("elu_layer", lambda: L.ELU(0.5), series)
    one("softmax_layer", lambda: L.Softmax(axis=1), series)
    for name in ("Add", "Average", "Maximum", "Minimum", "Multiply"):
        one(f"merge_{name}", lambda m=name: getattr(L, m)(), series, series, series)
    one("subtract", lambda: L.Subtract(), series, series)
    one("merge_ranks", lambda: L.Add(), series, (5,))
    one("concatenate", lambda: L.Concatenate(axis=1), series, (2, 5))
    one("dot", lambda: L.Dot(axes=(2, 2), normalize=True), series, (3, 5))
    one("dot_vectors", lambda: L.Dot(axes=1), (5,), (5,))
    for name in ("SimpleRNN", "LSTM", "GRU"):
        kind = getattr(L, name)
        one(name, lambda kind=kind: kind(4), series)
        one(f"{name}_all", lambda kind=kind: kind(4, return_sequences=True), series)
        one(f"{name}_back", lambda k=kind: k(4, go_backwards=True, return_sequences=True), series)
        one(f"{name}_state", lambda kind=kind: kind(4, return_state=True), series)
        one(f"{name}_relu", lambda kind=kind: kind(4, activation="relu", use_bias=False), series)
        one(f"{name}_gelu", lambda kind=kind: kind(4, activation="gelu"), series)
        for mode in ("concat", "sum", "ave", "mul", None):
            one(
                f"bidirectional_{name}_{mode}",
                lambda kind=kind, mode=mode: L.Bidirectional(
                    kind(3, return_sequences=True), merge_mode=mode
                ),
                series,
            )
        one(f"bidirectional_{name}_last", lambda kind=kind: L.Bidirectional(kind(3)), series)
    one("gru_reset_before", lambda: L.GRU(4, reset_after=False), series)
    one("lstm_hard", lambda: L.LSTM(4, recurrent_activation="hard_sigmoid"), series)
    one("rnn_of_cell", lambda: L.RNN(L.LSTMCell(4), return_sequences=True), series)
    one("rnn_of_cells", lambda: L.RNN([L.GRUCell(4), L.LSTMCell(3)]), series)
    one("time_distributed", lambda: L.TimeDistributed(L.Conv2D(2, 3)), (4, 6, 5, 3))
    one("additive_attention", lambda: L.AdditiveAttention(), series, (3, 5))
    one("attention", lambda: L.Attention(use_scale=True), series, (3, 5))
    one("attention_concat", lambda: L.Attention(score_mode="concat"), series, (3, 5), (3, 5))
    one("embedding", lambda: L.Embedding(3, 4), (6,), dtype="int32")
    found.update(_networks(keras))
    return found


def _networks(keras: Any) -> dict[str, Callable[[], Any]]:
    """Models of several layers."""
    L, Input, Model = keras.layers, keras.Input, keras.Model

    def masked_lstm(zero: bool = False) -> Any:
        tokens = Input((6,), dtype="int32", name="tokens")
        x = L.Embedding(3, 4, mask_zero=True)(tokens)
        x = L.Bidirectional(L.LSTM(3, return_sequences=True))(x)
        x = L.GRU(4, return_sequences=zero)(L.Dropout(0.1)(x))
        return Model(tokens, L.GlobalAveragePooling1D()(x) if zero else L.Dense(2)(x))

    def masking() -> Any:
        x = Input((5, 3))
        return Model(x, L.LSTM(4)(L.Masking(0.0)(L.ReLU(threshold=1.0)(x))))

    def masked_attention() -> Any:
        tokens = Input((6,), dtype="int32")
        x = L.Embedding(3, 8, mask_zero=True)(tokens)
        x = L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
        return Model(tokens, L.LayerNormalization()(x))

    def attention_heads() -> Any:
        q, v = Input((7, 5)), Input((4, 6))
        y, scores = L.MultiHeadAttention(2, 3, value_dim=4)(q, v, return_attention_scores=True)
        return Model([q, v], [y, scores])

    def cross_attention() -> Any:
        q, v, mask = Input((7, 5)), Input((4, 5)), Input((7, 4), dtype="bool")
        return Model([q, v, mask], L.MultiHeadAttention(2, 3)(q, v, attention_mask=mask))

    def image_attention() -> Any:
        x = Input((4, 5, 6))
        return Model(x, L.MultiHeadAttention(2, 3, attention_axes=(1, 2))(x, x))

    def initial_state() -> Any:
        x, h, c = Input((7, 5)), Input((4,)), Input((4,))
        y = L.LSTM(4, return_sequences=True, return_state=True)(x, initial_state=[h, c])
        return Model([x, h, c], y)

    def nested() -> Any:
        inner = keras.Sequential([L.Input((6,)), L.Dense(6), L.BatchNormalization()], name="inner")
        x = Input((6,), name="x")
        outer = Model(x, [inner(x), L.Dense(6)(inner(L.Dense(6)(x)))], name="outer")
        y = Input((6,), name="y")
        a, b = outer(y)
        return Model(y, [L.Add()([a, b]), inner(b)])

    def shared() -> Any:
        a, b = Input((6,), name="a"), Input((6,), name="b")
        layer = L.Dense(4, activation="tanh")
        return Model({"a": a, "b": b}, L.Concatenate()([layer(a), layer(b)]))

    def sequential() -> Any:
        return keras.Sequential(
            [
                L.Input((8, 8, 3)),
                L.Conv2D(4, 3, activation="relu"),
                L.MaxPooling2D(),
                L.Flatten(),
                L.Dense(10, activation="softmax"),
            ]
        )

    def transformer() -> Any:
        tokens = Input((None,), dtype="int32")
        x = L.Embedding(20, 16)(tokens)
        y = L.LayerNormalization()(x)
        x = L.Add()([x, L.MultiHeadAttention(4, 4)(y, y)])
        y = L.Dense(32, activation="gelu")(L.LayerNormalization()(x))
        x = L.Add()([x, L.Dense(16)(y)])
        return Model(tokens, L.Dense(20)(L.GlobalAveragePooling1D()(x)))

    networks = {f.__name__: f for f in (masking, masked_attention, attention_heads, shared, nested)}
    networks |= {f.__name__: f for f in (cross_attention, image_attention, initial_state)}
    networks |= {f.__name__: f for f in (sequential, transformer, masked_lstm)}
    return {**networks, "masked_sequence": lambda: masked_lstm(zero=True)}
