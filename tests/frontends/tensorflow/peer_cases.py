"""Small functions of TensorFlow's operators: a name, a function, and the arrays that go in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[Callable[..., Any], list[Any]]


def cases(tf: Any) -> dict[str, Case]:
    """Functions by name with inputs for them."""
    rng = np.random.default_rng(0)
    raw = tf.raw_ops
    found: dict[str, Case] = {}

    def real(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def add(name: str, function: Callable[..., Any], *inputs: Any) -> None:
        found[name] = (function, list(inputs))

    x, y, image = real(3, 4), real(3, 4), real(2, 7, 6, 4)
    for name in (
        "abs acos asin atan ceil cos cosh elu erf exp expm1 floor relu relu6 rsqrt sigmoid sign "
        "sin sinh softplus softsign sqrt square tan tanh log log1p reciprocal round"
    ).split():
        function = getattr(tf.math, name, None) or getattr(tf.nn, name)
        add(name, function, np.abs(x) % 0.9 + 0.05 if name in _POSITIVE else x)
    for name in "add subtract multiply divide maximum minimum squared_difference atan2".split():
        add(name, getattr(tf.math, name), x, y[:1])
    add("pow", tf.pow, np.abs(x), y)
    add("floordiv", tf.math.floordiv, x, y)
    add(
        "floormod", tf.math.floormod, np.array([7, -7, 5], np.int32), np.array([3, 3, -3], np.int32)
    )
    add("divide_no_nan", tf.math.divide_no_nan, x, np.where(y > 0, y, 0).astype(np.float32))
    add("xlogy", tf.math.xlogy, np.where(x > 0, x, 0).astype(np.float32), np.abs(y))
    add("add_n", lambda a, b: tf.add_n([a, b, a]), x, y)
    add("logical", lambda a, b: (a > 0) & ~(b > 0) | tf.math.is_nan(a), x, y)
    add("where", lambda a, b: tf.where(a > b, a, b), x, y)
    add("cast", lambda a: tf.cast(a * 10, tf.int32), x)
    add("clip", lambda a: tf.clip_by_value(a, -0.5, 0.5), x)
    add("leaky_relu", lambda a: tf.nn.leaky_relu(a, 0.3), x)
    add("selu", tf.nn.selu, x)
    add("gelu", lambda a: tf.nn.gelu(a), x)
    add("swish", tf.nn.silu, x)
    add("softmax", lambda a: tf.nn.softmax(a), x)
    add("softmax_axis", lambda a: tf.nn.softmax(a, axis=1), image)
    add("log_softmax", lambda a: tf.nn.log_softmax(a), x)
    add("bias_add", lambda a: tf.nn.bias_add(a, real(4)), image)
    add("matmul", lambda a, b: tf.matmul(a, b, transpose_b=True), x, y)
    add("batch_matmul", lambda a, b: tf.matmul(a, b, adjoint_a=True), real(2, 3, 4), real(2, 3, 5))
    add("einsum", lambda a, b: tf.einsum("bij,bjk->bki", a, b), real(2, 3, 4), real(2, 4, 5))
    add("band_part", lambda a: tf.linalg.band_part(a, 1, 0), real(5, 5))
    add("diag", tf.linalg.diag, x)
    add("diag_part", tf.linalg.diag_part, real(3, 5))
    for name in "reduce_sum reduce_mean reduce_max reduce_min reduce_prod".split():
        reduce = getattr(tf, name)
        add(name, lambda a, f=reduce: f(a, axis=[1, 2]), image)
        add(f"{name}_keep", lambda a, f=reduce: f(a, axis=-1, keepdims=True), image)
    add("reduce_all", lambda a: tf.reduce_all(a > -1, axis=0), x)
    add("logsumexp", lambda a: tf.reduce_logsumexp(a, axis=1), x)
    add("moments", lambda a: tf.nn.moments(a, [1, 2]), image)
    add("argmax", lambda a: tf.argmax(a, axis=1), x)
    add("argmin", lambda a: tf.argmin(a, axis=0, output_type=tf.int32), x)
    add("cumsum", lambda a: tf.cumsum(a, axis=1, exclusive=True, reverse=True), x)
    _images(tf, add, real, image)
    add("reshape", lambda a: tf.reshape(a, [tf.shape(a)[0], -1]), image)
    add("transpose", lambda a: tf.transpose(a, [0, 3, 1, 2]), image)
    add("squeeze", lambda a: tf.squeeze(tf.expand_dims(a, 1)), x)
    add("tile", lambda a: tf.tile(a, [2, 3]), x)
    add("broadcast", lambda a: tf.broadcast_to(a, [2, 3, 4]), x)
    add("concat", lambda a, b: tf.concat([a, b, a], -1), x, y)
    add("stack", lambda a, b: tf.stack([a, b], axis=1), x, y)
    add("unstack", lambda a: tf.unstack(a, axis=1), x)
    add("split", lambda a: tf.split(a, 2, axis=1), x)
    add("split_sizes", lambda a: tf.split(a, [1, -1], axis=1), x)
    add("slice", lambda a: tf.slice(a, [1, 0], [2, -1]), x)
    add("strided", lambda a: a[..., tf.newaxis, 1:-1:2, 0], image)
    add("strided_back", lambda a: a[:, ::-1, -2:, -1], image)
    add(
        "strided_shape",
        lambda a: tf.zeros(tf.shape(a)[1:3]) + tf.cast(tf.shape(a)[-1], "float32"),
        image,
    )
    add("reverse", lambda a: tf.reverse(a, [1]), image)
    add(
        "reverse_sequence",
        lambda a: tf.reverse_sequence(a, [3, 1], seq_axis=1, batch_axis=0),
        image,
    )
    add("roll", lambda a: tf.roll(a, [1, -2], [0, 1]), x)
    add("pad", lambda a: tf.pad(a, [[1, 0], [0, 2]], constant_values=3.0), x)
    add("reflect", lambda a: tf.pad(a, [[1, 1], [2, 0]], "REFLECT"), x)
    add("symmetric", lambda a: tf.pad(a, [[1, 1], [2, 0]], "SYMMETRIC"), x)
    add("gather", lambda a: tf.gather(a, [[2, 0], [1, 1]], axis=1), x)
    add(
        "gather_batch",
        lambda a, i: tf.gather(a, i, axis=1, batch_dims=1),
        x,
        np.array([[0], [3], [1]]),
    )
    add("gather_nd", lambda a: tf.gather_nd(a, [[0, 1], [2, 3]]), x)
    add("scatter_nd", lambda a: tf.scatter_nd([[1], [3], [1]], a, [5, 4]), x)
    add("scatter_update", lambda a, b: tf.tensor_scatter_nd_update(a, [[2]], b[:1]), x, y)
    add("scatter_add", lambda a, b: tf.tensor_scatter_nd_add(a, [[2], [2]], b[:2]), x, y)
    add("segment_sum", lambda a: tf.math.unsorted_segment_sum(a, [1, 0, 1], 3), x)
    add("one_hot", lambda i: tf.one_hot(i, 4, 5.0, -1.0, axis=0), np.array([1, 3, -1, 9], np.int32))
    add("top_k", lambda a: tf.math.top_k(a, 2), x)
    add("nonzero", lambda a: tf.where(a > 0), x)
    add("unique", lambda a: tf.unique(a), np.array([5, 3, 5, 1, 3], np.int32))
    add("range", lambda a: tf.range(tf.shape(a)[0], 10, 2), x)
    add("linspace", lambda a: tf.linspace(a[0, 0], a[0, 1], 5), x)
    add("fill", lambda a: tf.fill(tf.shape(a), 2.5) + tf.ones_like(a), x)
    add("size_rank", lambda a: tf.size(a) + tf.rank(a), x)
    add("bucketize", lambda a: raw.Bucketize(input=a, boundaries=[-1.0, 0.0, 1.0]), x)
    add("l2_normalize", lambda a: tf.math.l2_normalize(a, 1), x)
    add("invert_permutation", lambda a: tf.transpose(a, tf.math.invert_permutation([1, 0])), x)
    _control(tf, add, x)
    return found


_POSITIVE = frozenset("acos asin rsqrt sqrt log log1p reciprocal".split())


def _images(tf: Any, add: Any, real: Any, image: Any) -> None:
    raw, nn = tf.raw_ops, tf.nn
    weight, depth = real(3, 2, 4, 5), real(3, 3, 4, 2)
    for padding in ("SAME", "VALID"):
        add(f"conv_{padding}", lambda a, p=padding: nn.conv2d(a, weight, [2, 1], p), image)
        add(
            f"depthwise_{padding}",
            lambda a, p=padding: nn.depthwise_conv2d(a, depth, [1, 1, 1, 1], p),
            image,
        )
        add(f"max_pool_{padding}", lambda a, p=padding: nn.max_pool2d(a, 3, 2, p), image)
        add(f"avg_pool_{padding}", lambda a, p=padding: nn.avg_pool2d(a, 3, 2, p), image)
        add(
            f"conv_transpose_{padding}",
            lambda a, p=padding: nn.conv2d_transpose(
                a,
                tf.transpose(weight, [0, 1, 3, 2]),
                [2, 14, 12, 5] if p == "SAME" else [2, 15, 12, 5],
                2,
                p,
            ),
            image,
        )
    add("conv_dilated", lambda a: nn.conv2d(a, weight, 1, "SAME", dilations=2), image)
    add("conv_explicit", lambda a: nn.conv2d(a, weight, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), image)
    add("conv_groups", lambda a: nn.conv2d(a, real(3, 3, 2, 6), 1, "SAME"), image)
    add("conv1d", lambda a: nn.conv1d(a, real(3, 4, 2), 2, "SAME"), real(2, 9, 4))
    add(
        "conv3d",
        lambda a: nn.conv3d(a, real(2, 2, 2, 3, 4), [1, 2, 2, 2, 1], "SAME"),
        real(2, 5, 6, 4, 3),
    )
    add(
        "batch_norm",
        lambda a: (
            raw.FusedBatchNormV3(
                x=a,
                scale=[1.0, 2.0, 0.5, 1.5],
                offset=[0.0, 1.0, -1.0, 0.5],
                mean=[0.1, 0.2, 0.3, 0.4],
                variance=[1.0, 2.0, 3.0, 0.5],
                is_training=False,
            ).y
        ),
        image,
    )
    add("lrn", lambda a: nn.lrn(a, depth_radius=1, bias=1.5, alpha=0.3, beta=0.6), image)
    add("depth_to_space", lambda a: nn.depth_to_space(a, 2), image)
    add("space_to_depth", lambda a: nn.space_to_depth(a[:, :6], 2), image)
    add("space_to_batch", lambda a: tf.space_to_batch(a, [2, 3], [[1, 0], [0, 0]]), image)
    add(
        "batch_to_space", lambda a: tf.batch_to_space(a, [2, 2], [[0, 1], [1, 0]]), real(8, 3, 4, 2)
    )
    for flags in ((True, False), (False, False), (False, True)):
        for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"):
            add(
                f"{op}_{flags[0]}_{flags[1]}",
                lambda a, op=op, f=flags: getattr(raw, op)(
                    images=a, size=[5, 11], align_corners=f[0], half_pixel_centers=f[1]
                ),
                image,
            )


def _control(tf: Any, add: Any, x: Any) -> None:
    add("if", lambda a: tf.cond(tf.reduce_sum(a) > 0, lambda: a + 1.0, lambda: a * 2.0), x)
    add("if_other", lambda a: tf.cond(tf.reduce_sum(a) > 99, lambda: a + 1.0, lambda: a * 2.0), x)
    add(
        "case",
        lambda a: tf.switch_case(
            tf.cast(a[0, 0] > 0, tf.int32), [lambda: a, lambda: a * 3.0, lambda: a - 1.0]
        ),
        x,
    )
    add(
        "while",
        lambda a: tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 0.5 + a), [0, a])[1],
        x,
    )
    add(
        "while_data",
        lambda a: tf.while_loop(
            lambda v: tf.reduce_sum(v) < 50.0, lambda v: (v * 1.5 + 1.0,), [tf.abs(a)]
        )[0],
        x,
    )
    add(
        "nested_while",
        lambda a: tf.while_loop(
            lambda i, v: i < 3,
            lambda i, v: (
                i + 1,
                tf.while_loop(lambda j, w: j < i, lambda j, w: (j + 1, w + a), [0, v])[1],
            ),
            [0, a],
        )[1],
        x,
    )
    add(
        "if_in_while",
        lambda a: tf.while_loop(
            lambda i, v: i < 4,
            lambda i, v: (i + 1, tf.cond(i % 2 > 0, lambda: v + a, lambda: v * 0.5)),
            [0, a],
        )[1],
        x,
    )

    def array(a: Any) -> Any:
        made = tf.TensorArray(tf.float32, size=tf.shape(a)[0])
        for i in tf.range(tf.shape(a)[0]):
            made = made.write(i, a[i] * tf.cast(i, tf.float32))
        return made.stack()

    add("tensor_array", array, x)
    add("map", lambda a: tf.map_fn(lambda v: v * tf.reduce_sum(v), a), x)
    add("scan", lambda a: tf.scan(lambda s, v: s * 0.5 + v, a), x)
