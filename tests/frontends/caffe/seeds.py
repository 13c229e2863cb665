"""Sound networks that damaged ones are made of."""

from __future__ import annotations

from tests.frontends.caffe import networks as nets


def _small() -> nets.Net:
    net = nets.Net(1, 3, 12, 12)
    net.conv(8, stride=2)
    net.norm()
    net.relu()
    net.pool()
    net.conv(4, group=2)
    net.layer("LRN", "lrn_param { local_size: 3 alpha: 0.5 }")
    net.layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }")
    net.layer("Permute", "permute_param { order: 0 order: 2 order: 1 }")
    net.dense(12, 5)
    return net


def _lines(net: nets.Net) -> tuple[bytes, bytes, dict[str, object]]:
    text, data = net.files()
    # One field a line, so that damage to a line is damage to a field.
    return text.replace(b" } ", b"\n}\n").replace(b" { ", b" {\n"), data, {}


SEEDS = {"small": _lines(_small()), "ssd": _lines(nets.ssd())}
