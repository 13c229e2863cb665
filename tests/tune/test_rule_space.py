"""The space of the default rules: figures of the machine are choices where loops depend on them,
and threads for kernels of little work."""

from __future__ import annotations

import pytest

import tilewright as tw
from tests.tune.test_sketches import softmax
from tests.tune.test_tuners import matmul
from tilewright.schedule import RULES_BY_ADDRESS
from tilewright.support.config import format_size
from tilewright.tune.spaces.rules import rule_space
from tilewright.tune.spaces.space import Sample
from tilewright.tune.tuners.tuner import matching

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
    function = matmul(96)
    made = RULES_BY_ADDRESS.schedule(function, TARGET)
    assert rule_space(function, TARGET).default.text == str(made.function)


# ---- figures ------------------------------------------------------------------------------------


def described_wrongly(target: tw.Target) -> tw.Target:
    """Caches halved, ports doubled, vectors of another width where there is one."""
    l1d, l2, l3, _ = target.caches
    sizes = f"-l1d={l1d // 2} -l2={l2 // 2} -l3={l3 // 2} -fma-ports={2 * target.fma_ports}"
    bits = target.vector_widths[-1]
    wish = f" -mattr=+prefer-{bits}-bit" if bits != target.vector_bits else ""
    return tw.Target.of(f"llvm -mcpu={target.cpu} -num-cores={target.cores} {sizes}{wish}")


def words_of(target: tw.Target) -> dict[str, str]:
    """The figures of a target as choices."""
    l1d, l2, l3, _ = target.caches
    figures = {"l1d": l1d, "l2": l2, "l3": l3, "fma_ports": target.fma_ports}
    figures["vectors"] = target.vector_bits
    return {f"machine.{name}": format_size(value) for name, value in figures.items()}


@pytest.mark.parametrize("cpu", ["znver3", "neoverse-n1", "icelake-server"])
@pytest.mark.parametrize("function", [matmul(256), softmax()], ids=["matmul", "softmax"])
def test_wrong_figures_can_be_got_back(cpu: str, function: tw.Function) -> None:
    """The space holds the loops that the rules make by right figures."""
    right = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=4")
    wanted = str(RULES_BY_ADDRESS.schedule(function, right).function)
    space = rule_space(function, described_wrongly(right))
    # Other vectors bring other choices.
    space.point(matching(space, words_of(right)))
    point = space.point(matching(space, words_of(right)))
    assert point is not None and point.text == wanted


def test_figures_on_which_nothing_depends_are_no_choices() -> None:
    found = rule_space(matmul(256), described_wrongly(TARGET)).knobs.keys()
    assert {"machine.l1d", "machine.l2", "machine.fma_ports"} <= found
    assert not {"machine.l3", "machine.vectors"} & found
    assert not any(n.startswith("machine") for n in rule_space(softmax(), TARGET).knobs)


def test_wrong_figures_change_no_code_of_the_same_loops() -> None:
    right = tw.Target.of("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server -num-cores=2")
    wrong = tw.Target.of(f"{right} -l1d=16K -fma-ports=4 -mattr=+prefer-128-bit")
    made = RULES_BY_ADDRESS.schedule(softmax(), right)
    assert "vectorized(16)" in str(made.function)
    assert tw.build(made, right).asm == tw.build(made, wrong).asm
