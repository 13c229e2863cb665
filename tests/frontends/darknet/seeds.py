"""Sound networks that damaged ones are made of."""

from __future__ import annotations

from typing import Any

from tests.frontends.darknet import networks as nets

#: A description, its weights, and the shapes of inputs that it does not tell.
Seed = tuple[bytes, bytes, dict[str, Any]]


def _seed(sections: list[nets.Section], size: int) -> Seed:
    text = nets.cfg_text(sections, size, size).encode()
    return text, nets.weights(sections, size, size), {}


def _small() -> list[nets.Section]:
    made = [nets.conv(4), nets.pool(), nets.conv(8, groups=2), ("reorg", {"stride": 2})]
    made += [("upsample", {"stride": 2}), nets.route(-1, 2), nets.linear(20)]
    return [*made, nets.yolo("0,1", 5, "1,2, 3,4")]


SEEDS = {"small": _seed(_small(), 16), "classifier": _seed(nets.classifier(), 16)}
