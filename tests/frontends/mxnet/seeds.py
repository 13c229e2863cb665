"""Sound networks that damaged ones are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.mxnet.networks import Net, classifier

#: A description, its weights, and the shapes of inputs that it does not tell.
Seed = tuple[bytes, bytes, dict[str, Any]]


def _classifier() -> Seed:
    net, head = classifier()
    return (*net.files(head), {"data": [2, 3, 6, 6]})


def _shapes() -> Seed:
    """Shapes, order, elements by index, a recurrent layer and a loop."""
    rng = np.random.default_rng(0)
    net = Net()
    x = net.node("Reshape", net.var("x"), shape="(0, -4, 2, -1, -2)")
    x = net.node("transpose", x, axes="(2, 0, 1, 3)")
    x = net.node("Reshape", x, shape="(0, 0, -3)")
    weight = net.var("w", rng.standard_normal(4 * 3 * (8 + 3 + 2)).astype(np.float32))
    state = net.node("_zeros", shape="(1, 2, 3)")
    x = net.node("RNN", x, weight, state, state, mode="lstm", state_size=3, num_layers=1)
    best = net.node("topk", x, k=2, axis=2, ret_typ="indices")
    part = net.node("slice", x, begin="(0, None)", end="(2, None)", step="(1, -1)")
    inner = Net()
    total = inner.node("elemwise_add", inner.var("a"), inner.var("s"))
    loop = net.node("_foreach", part, net.node("ones_like", net.node("sum", part, axis=0)),
                    subgraphs=[inner.graph(total, total)], num_out_data=1, in_data_locs="(0,)",
                    in_state_locs="(1,)", remain_locs="()")  # fmt: skip
    return (*net.files(best, loop), {"x": [2, 4, 3, 4]})


SEEDS = {"classifier": _classifier(), "shapes": _shapes()}
