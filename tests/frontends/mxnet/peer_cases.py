"""The cases that `peer.py` asks MXNet about: symbols and the shapes, or values, of their inputs."""

# pyright: basic

from __future__ import annotations

from typing import Any

import numpy as np

IMG = {"x": (2, 6, 9, 8)}
VEC = {"x": (3, 5)}
PAIR = {"x": (2, 3, 4), "y": (2, 3, 4)}
ROW = {"x": (2, 3, 4), "y": (1, 3, 1)}


def operators(s: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Symbols and the shapes (or values) of their inputs; other variables are parameters."""
    x, y, z = s.var("x"), s.var("y"), s.var("z")
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "conv": (
            s.Convolution(
                x,
                kernel=(3, 2),
                num_filter=4,
                stride=(1, 2),
                pad=(1, 0),
                dilate=(2, 1),
                num_group=2,
            ),
            IMG,
        ),
        "conv1d": (s.Convolution(x, kernel=(3,), num_filter=4, no_bias=True), {"x": (2, 3, 9)}),
        "conv3d": (s.Convolution(x, kernel=(3, 2, 1), num_filter=4), {"x": (1, 2, 5, 4, 3)}),
        "deconv": (
            s.Deconvolution(
                x, kernel=(4, 3), num_filter=4, stride=(2, 2), pad=(1, 1), adj=(1, 0), num_group=2
            ),
            IMG,
        ),
        "dense": (s.FullyConnected(x, num_hidden=7), IMG),
        "dense_rows": (s.FullyConnected(x, num_hidden=7, flatten=False, no_bias=True), IMG),
        "batch_norm": (s.BatchNorm(x), IMG),
        "batch_norm_gamma": (s.BatchNorm(x, fix_gamma=False, eps=1e-5, axis=-1), IMG),
        "prelu": (s.LeakyReLU(x, act_type="prelu"), IMG),
        "lrn": (s.LRN(x, nsize=3, alpha=0.5, beta=0.6, knorm=1.5), IMG),
        "instance_norm": (s.InstanceNorm(x), IMG),
        "layer_norm": (s.LayerNorm(x, axis=-1), IMG),
        "layer_norm_1": (s.LayerNorm(x, axis=1), IMG),
        "group_norm": (s.GroupNorm(x, num_groups=3), IMG),
        "embedding": (
            s.Embedding(x, input_dim=7, output_dim=3),
            {"x": np.array([[0, 6.0], [9, 2]])},
        ),
        "softmax_output": (s.SoftmaxOutput(x, name="softmax"), VEC),
        "softmax_output_4": (s.SoftmaxOutput(x, name="softmax", multi_output=True), IMG),
        "softmax_activation": (s.SoftmaxActivation(x), IMG),
        "softmax_channel": (s.SoftmaxActivation(x, mode="channel"), IMG),
        "softmax_length": (
            s.softmax(x, y, use_length=True),
            {"x": (3, 5), "y": np.array([2, 5, 1], np.int32)},
        ),
        "logistic": (s.LogisticRegressionOutput(x, name="l"), VEC),
        "linear": (s.LinearRegressionOutput(x, name="l"), VEC),
        "upsampling": (s.UpSampling(x, scale=2, sample_type="nearest"), IMG),
        "upsampling_2": (
            s.UpSampling(x, s.var("w"), scale=2, sample_type="bilinear", num_filter=6, num_args=2),
            IMG,
        ),
        "upsampling_3": (
            s.UpSampling(x, s.var("w"), scale=3, sample_type="bilinear", num_filter=6, num_args=2),
            IMG,
        ),
        "resize": (s.contrib.BilinearResize2D(x, height=13, width=5), IMG),
        "resize_scale": (
            s.contrib.BilinearResize2D(x, scale_height=2, scale_width=1.5, align_corners=False),
            IMG,
        ),
        "adaptive": (s.contrib.AdaptiveAvgPooling2D(x, output_size=(4, 3)), IMG),
        "roi_pooling": (
            s.ROIPooling(x, y, pooled_size=(2, 2), spatial_scale=0.5),
            {"x": (1, 2, 8, 8), "y": np.array([[0, 0, 0, 9, 9], [0, 4, 2, 14, 12.0]])},
        ),
        "roi_align": (
            s.contrib.ROIAlign(x, y, pooled_size=(2, 3), spatial_scale=0.5, sample_ratio=2),
            {"x": (1, 2, 8, 8), "y": np.array([[0, 0, 0, 9, 9], [0, 4, 2, 14, 12.0]])},
        ),
        "add_n": (s.add_n(x, y, x), PAIR),
        "where": (s.where(x > 0, x, y), PAIR),
        "where_rows": (s.where(z, x, y), {**PAIR, "z": np.array([0.0, 1])}),
        "concat": (s.Concat(x, y, dim=1), PAIR),
        "stack": (s.stack(x, y, axis=-1), PAIR),
        "split": (
            s.Group(list(s.SliceChannel(x, num_outputs=3, axis=1, squeeze_axis=True))),
            PAIR_X,
        ),
        "split_v2": (s.Group(list(s.split_v2(x, (1, 3), axis=2))), PAIR_X),
        "slice_like": (s.slice_like(x, y, axes=(1, 2)), {"x": (2, 5, 6), "y": (1, 3, 4)}),
        "crop": (s.Crop(x, y, center_crop=True), {"x": (1, 2, 9, 8), "y": (1, 2, 4, 5)}),
        "reshape_like": (s.reshape_like(x, y), {"x": (2, 6), "y": (3, 4)}),
        "broadcast_like": (s.broadcast_like(x, y), {"x": (1, 3, 1), "y": (2, 3, 4)}),
        "dot": (s.dot(x, y), {"x": (2, 3, 4), "y": (4, 5)}),
        "dot_t": (s.dot(x, y, transpose_a=True, transpose_b=True), {"x": (4, 3), "y": (5, 4)}),
        "batch_dot": (s.batch_dot(x, y, transpose_b=True), {"x": (2, 3, 4), "y": (2, 5, 4)}),
        "gemm2": (s.linalg.gemm2(x, y, alpha=0.5), {"x": (2, 3, 4), "y": (2, 4, 5)}),
        "take": (
            s.take(x, y, axis=1, mode="wrap"),
            {"x": (2, 3, 4), "y": np.array([[0, -1], [4, 2.0]])},
        ),
        "take_clip": (s.take(x, y), {"x": (2, 3, 4), "y": np.array([0, 5, -3.0])}),
        "pick": (
            s.pick(x, y, axis=1),
            {"x": (2, 3, 4), "y": np.array([[0, 1, 2, 9], [2, 2, 0, -4.0]])},
        ),
        "gather_nd": (s.gather_nd(x, y), {"x": (2, 3, 4), "y": np.array([[0, 1, 1], [2, 0, 1.0]])}),
        "one_hot": (
            s.one_hot(x, depth=4, on_value=2, off_value=-1),
            {"x": np.array([0, 3, 7, -1.0])},
        ),
        "sequence_mask": (
            s.SequenceMask(x, y, use_sequence_length=True, value=-2),
            {"x": (4, 3, 2), "y": np.array([1, 4, 2.0])},
        ),
        "sequence_mask_1": (
            s.SequenceMask(x, y, use_sequence_length=True, axis=1),
            {"x": (3, 4, 2), "y": np.array([1, 4, 2.0])},
        ),
        "sequence_reverse": (
            s.SequenceReverse(x, y, use_sequence_length=True),
            {"x": (4, 3, 2), "y": np.array([1, 4, 2.0])},
        ),
        "sequence_last": (
            s.SequenceLast(x, y, use_sequence_length=True),
            {"x": (4, 3, 2), "y": np.array([1, 4, 2.0])},
        ),
        "topk_both": (s.Group(list(s.topk(x, k=2, ret_typ="both", axis=1))), PAIR_X),
        "prior": (
            s.contrib.MultiBoxPrior(x, sizes=(0.3, 0.5), ratios=(1, 2, 0.5), clip=True),
            {"x": (1, 2, 3, 4)},
        ),
        "prior_steps": (
            s.contrib.MultiBoxPrior(
                x, sizes=(0.3,), ratios=(2, 0.5), steps=(0.2, 0.3), offsets=(0.4, 0.6)
            ),
            {"x": (1, 2, 4, 3)},
        ),
        "interleaved": (s.contrib.interleaved_matmul_selfatt_qk(x, heads=2), {"x": (5, 2, 24)}),
        "valatt": (
            s.contrib.interleaved_matmul_selfatt_valatt(x, y, heads=2),
            {"x": (5, 2, 24), "y": (4, 5, 5)},
        ),
        "arange_like": (
            s.broadcast_add(x, s.reshape(s.contrib.arange_like(x, axis=2), shape=(1, 1, -1))),
            PAIR_X,
        ),
        "amp": (s.Group(list(s.amp_multicast(x, y, num_outputs=2))), PAIR),
        "roundings": (
            s.round(x * 2) + 3 * s.rint(x * 2) + s.fix(x),
            {"x": np.array([-1.5, -0.25, 0.75, 1.25, 1.9, -2.6])},
        ),
    }
    for kind in ("max", "avg", "sum", "lp"):
        more = {"p_value": 2} if kind == "lp" else {}
        for convention in ("valid", "full"):
            if (kind, convention) == ("sum", "full"):
                continue
            pad = (1, 1)
            cases[f"pool_{kind}_{convention}"] = (
                s.Pooling(
                    x,
                    kernel=(3, 3),
                    stride=(2, 2),
                    pad=pad,
                    pool_type=kind,
                    pooling_convention=convention,
                    **more,
                ),
                IMG,
            )
        cases[f"pool_{kind}_global"] = (
            s.Pooling(x, global_pool=True, pool_type=kind, kernel=(1, 1), **more),
            IMG,
        )
    cases["pool_avg_inside"] = (
        s.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False),
        IMG,
    )
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        cases[f"act_{kind}"] = (s.Activation(x, act_type=kind), VEC)
    for kind in ("leaky", "elu", "selu", "gelu", "rrelu"):
        cases[f"leaky_{kind}"] = (s.LeakyReLU(x, act_type=kind)[0], VEC)
    for mode in ("instance", "channel", "spatial"):
        cases[f"l2_{mode}"] = (s.L2Normalization(x, mode=mode), IMG)
    pairs = "add sub mul div maximum minimum hypot equal not_equal greater lesser greater_equal"
    for name in (*pairs.split(), "lesser_equal"):
        cases[f"broadcast_{name}"] = (getattr(s, f"broadcast_{name}")(x, y), ROW)
    cases["broadcast_power"] = (s.broadcast_power(s.abs(x), y), ROW)
    cases["broadcast_mod"] = (s.broadcast_mod(x, y), ROW)
    cases["scalars"] = (
        2 - (3 / (s.abs(x) + 1)) ** 2 + (x > 0.3) * 2 + 2**x + x % 0.7 - (x <= 0),
        VEC,
    )
    cases["scalars_2"] = (s.maximum(x, 0.2) - s.minimum(x, 0.1) / 3, VEC)
    functions = (
        "abs ceil cos erf exp expm1 floor negative reciprocal relu sigmoid sign sin softsign"
    )
    functions += " square tan tanh trunc arctan sinh cosh arcsinh logical_not"
    for name in functions.split():
        cases[f"fn_{name}"] = (getattr(s, name)(x), VEC)
    for name in "log log10 log2 log1p sqrt rsqrt arccosh".split():
        cases[f"fn_{name}"] = (getattr(s, name)(s.abs(x) + 1), VEC)
    cases["hard_sigmoid"] = (s.hard_sigmoid(x), VEC)
    cases["smooth_l1"] = (s.smooth_l1(x, scalar=2), VEC)
    cases["clip"] = (s.clip(x, -0.5, 0.4), VEC)
    cases["cast"] = (s.Cast(s.Cast(x * 10, dtype="int32"), dtype="float32"), VEC)
    for name in ("softmax", "log_softmax", "softmin"):
        cases[name] = (getattr(s, name)(x, axis=1, temperature=2.0), IMG)
    for name in ("sum", "mean", "prod", "max", "min"):
        cases[f"red_{name}"] = (getattr(s, name)(x, axis=(0, 2), keepdims=True), IMG)
        cases[f"red_{name}_all"] = (getattr(s, name)(x / 2 + 1), VEC)
        cases[f"red_{name}_exclude"] = (getattr(s, name)(x, axis=1, exclude=True), IMG)
    cases["norm_1"] = (s.norm(x, ord=1, axis=1), IMG)
    cases["norm_2"] = (s.norm(x, axis=(1, 2), keepdims=True), IMG)
    for name in ("argmax", "argmin"):
        cases[name] = (getattr(s, name)(x, axis=1), IMG)
        cases[f"{name}_keep"] = (getattr(s, name)(x, axis=2, keepdims=True), IMG)
    cases["argmax_channel"] = (s.argmax_channel(x), VEC)
    cases["sort"] = (s.sort(x, axis=1, is_ascend=False), PAIR_X)
    cases["argsort"] = (s.argsort(x, axis=0), PAIR_X)
    for kind in ("value", "indices", "mask"):
        cases[f"topk_{kind}"] = (
            s.topk(x, k=2, ret_typ=kind, axis=2, is_ascend=kind == "mask"),
            PAIR_X,
        )
    shapes = {
        "a": (0, -1),
        "b": (-2,),
        "c": (-3, 0),
        "d": (0, -4, 1, 3, -2),
        "e": (-4, -1, 2, -2),
        "f": (6, 4),
        "g": (-1, 0, 0, 1),
        "h": (0, -3),
    }
    for name, shape in shapes.items():
        cases[f"reshape_{name}"] = (s.reshape(x, shape=shape), PAIR_X)
    cases["reshape_reverse"] = (s.reshape(x, shape=(-1, 0), reverse=True), PAIR_X)
    cases["reshape_reverse_4"] = (
        s.reshape(x, shape=(0, -1, 2, -4, 0), reverse=True),
        {"x": (3, 4, 5)},
    )
    cases["flatten"] = (s.Flatten(x), IMG)
    cases["transpose"] = (s.transpose(x, axes=(0, 2, 1)), PAIR_X)
    cases["transpose_all"] = (s.transpose(x), PAIR_X)
    cases["swapaxes"] = (s.swapaxes(x, dim1=0, dim2=2), PAIR_X)
    cases["expand"] = (s.squeeze(s.expand_dims(x, axis=1), axis=1), PAIR_X)
    cases["slice"] = (s.slice(x, begin=(None, 2, 0), end=(None, 0, 3), step=(1, -1, 2)), PAIR_X)
    cases["slice_end"] = (s.slice(x, begin=(0, None), end=(1, None), step=(1, -1)), PAIR_X)
    cases["slice_axis"] = (s.slice_axis(x, axis=2, begin=-3, end=None), PAIR_X)
    cases["flip"] = (s.reverse(x, axis=(0, 2)), PAIR_X)
    cases["broadcast_to"] = (s.broadcast_to(x, shape=(2, 0, 4)), {"x": (1, 3, 1)})
    cases["broadcast_axis"] = (s.broadcast_axis(x, axis=(0, 2), size=(2, 4)), {"x": (1, 3, 1)})
    cases["tile"] = (s.tile(x, reps=(2, 1, 2, 1)), PAIR_X)
    cases["repeat"] = (s.repeat(x, repeats=2, axis=1), PAIR_X)
    cases["repeat_all"] = (s.repeat(x, repeats=2), PAIR_X)
    for mode in ("constant", "edge", "reflect"):
        width = (0, 0, 0, 0, 1, 2, 3, 1)
        cases[f"pad_{mode}"] = (s.Pad(x, mode=mode, pad_width=width, constant_value=3), IMG)
    cases["d2s"] = (
        s.space_to_depth(s.depth_to_space(x, block_size=2), block_size=2),
        {"x": (1, 8, 2, 3)},
    )
    cases["constants"] = (
        s.broadcast_add(
            x + s.ones((3, 5)) - s.zeros_like(x),
            s.reshape(s.arange(5), shape=(1, 5)) * s.full((1, 5), 2.5),
        ),
        VEC,
    )
    cases["shape"] = (s.Group([s.shape_array(x), s.size_array(x)]), PAIR_X)
    for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru"):
        for both in (False, True):
            states = [s.var("h"), *([s.var("c")] if mode == "lstm" else [])]
            size = (4 if both else 2, 3, 5)
            given = {"x": (4, 3, 6), **{v.name: size for v in states}}
            made = s.RNN(
                x,
                s.var("w"),
                *states,
                state_size=5,
                num_layers=2,
                mode=mode,
                bidirectional=both,
                state_outputs=True,
            )
            cases[f"{mode}_{both}"] = (made, given)
    boxes = np.array(
        [
            [0, 0.5, 0.1, 0.1, 0.2, 0.2],
            [1, 0.4, 0.1, 0.1, 0.2, 0.2],
            [0, 0.3, 0.1, 0.1, 0.14, 0.14],
            [2, 0.6, 0.5, 0.5, 0.7, 0.8],
            [0, 0.45, 0.11, 0.1, 0.21, 0.2],
            [-1, -1, 0, 0, 0, 0],
        ]
    )
    for force in (False, True):
        cases[f"nms_{force}"] = (
            s.contrib.box_nms(
                x,
                overlap_thresh=0.3,
                coord_start=2,
                score_index=1,
                id_index=0,
                force_suppress=force,
            ),
            {"x": np.stack([boxes, boxes[::-1]])},
        )
        cases[f"detection_{force}"] = (
            s.contrib.MultiBoxDetection(
                s.softmax(x * 3, axis=1),
                y,
                s.contrib.MultiBoxPrior(z, sizes=(0.3, 0.4), ratios=(1, 2)),
                nms_threshold=0.3,
                force_suppress=force,
                threshold=0.1,
            ),
            {"x": (2, 4, 48), "y": (2, 192), "z": (1, 1, 4, 4)},
        )
    for form in ("center", "corner"):
        cases[f"decode_{form}"] = (
            s.contrib.box_decode(x, y, std0=0.1, std1=0.2, std2=0.3, clip=0.5, format=form),
            {"x": (2, 6, 4), "y": boxes[None, :, 2:]},
        )
    cases["nms_centre"] = (
        s.contrib.box_nms(
            x,
            overlap_thresh=0.3,
            valid_thresh=0.35,
            topk=3,
            coord_start=2,
            score_index=1,
            in_format="center",
            out_format="corner",
        ),
        {"x": boxes},
    )
    cases["detection_topk"] = (
        s.slice_axis(
            s.contrib.MultiBoxDetection(
                s.softmax(x * 3, axis=1),
                y,
                s.contrib.MultiBoxPrior(z, sizes=(0.3, 0.4), ratios=(1, 2)),
                nms_threshold=0.3,
                nms_topk=10,
            ),
            axis=1,
            begin=0,
            end=10,
        ),
        {"x": (1, 4, 48), "y": (1, 192), "z": (1, 1, 4, 4)},
    )
    cases.update(control(s))
    return cases


PAIR_X = {"x": (2, 3, 4)}


def control(s: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    x, h, w = s.var("x"), s.var("h"), s.var("w")
    outs, states = s.contrib.foreach(
        lambda v, st: (v * w + st[0], [st[0] + v, st[1] * 2]), x, [h, w]
    )
    each = s.Group([outs, *states])
    outs, states = s.contrib.while_loop(
        lambda i, t: i < 4, lambda i, t: ([t + i], [i + 1, t * w]), [s.var("i"), s.var("t")], 6
    )
    loop = s.Group([s.slice_axis(outs[0], axis=0, begin=0, end=4), *states])
    branch = s.contrib.cond(s.sum(x) > 0, lambda: x * 2, lambda: x - h)
    return {
        "foreach": (each, {"x": (4, 3), "h": (3,), "w": (3,)}),
        "while": (loop, {"i": np.array([1.0]), "t": np.array([2.0]), "w": np.array([1.5])}),
        "cond_yes": (branch, {"x": np.ones(3), "h": (3,)}),
        "cond_no": (branch, {"x": -np.ones(3), "h": (3,)}),
    }
