"""The space of the default rules: threads are a choice for kernels of little work."""

from __future__ import annotations

import tilewright as tw
from tests.tune.test_tuners import matmul
from tilewright.tune.spaces.rules import rule_space
from tilewright.tune.spaces.space import Sample

TARGET = tw.Target.of("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=4")


def is_parallel(text: str) -> bool:
    return "parallel" in text


def test_light_kernels_may_have_one_thread() -> None:
    space = rule_space(matmul(96), TARGET)
    assert space.knobs["threads"] == (4, 1) and is_parallel(space.default.text)
    point = space.point(Sample.of({"threads": 1}))
    assert point is not None and point.values["threads"] == "1"
    assert not is_parallel(point.text)


def test_others_have_all_of_them() -> None:
    assert "threads" not in rule_space(matmul(256), TARGET).knobs
    alone = tw.Target.of("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=1")
    assert "threads" not in rule_space(matmul(96), alone).knobs


def test_the_default_is_what_the_rules_make() -> None:
    from tilewright.schedule import RULES_BY_ADDRESS

    function = matmul(96)
    made = RULES_BY_ADDRESS.schedule(function, TARGET)
    assert rule_space(function, TARGET).default.text == str(made.function)
