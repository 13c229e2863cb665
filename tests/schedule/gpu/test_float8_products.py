"""Products of floats of eight bits on GPUs, summed in float32 by tensor instructions."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.schedule.gpu.launches import TARGET, assemble, run, scheduled
from tests.schedule.gpu.test_byte_products import only_groups as only_groups
from tests.schedule.gpu.test_tensor_products import instructions, numbers, product
from tilewright.kernels.pipeline import generated
from tilewright.schedule import RULES_BY_ADDRESS

FLOAT8 = "float8_e4m3fn"
WARPS = tw.Target.of("cuda -arch=sm_89")


def check(m: int, n: int, k: int, target: tw.Target, kind: str) -> None:
    s = scheduled(product(m, n, k, by_columns="b", dtype=FLOAT8), target)
    (name,) = instructions(s)
    assert name.startswith(f"{kind}.f8e4m3fn.")
    x, y = numbers(FLOAT8, m, k), numbers(FLOAT8, n, k)
    # Zero, the least, the greatest and no number at all.
    x[0, :4] = np.array([0, 2**-9, 448, -448]).astype(x.dtype)
    x[1, 0] = np.nan
    want = x.astype("float32") @ y.astype("float32").T
    np.testing.assert_array_equal(run(s.function, [x, y], [((m, n), "float32")])[0], want)


@pytest.mark.parametrize("size", [(64, 64, 64), (17, 33, 65), (130, 70, 48)])
def test_products_by_warps(size: tuple[int, int, int]) -> None:
    check(*size, WARPS, "mma")


@pytest.mark.usefixtures("only_groups")
def test_products_by_groups_of_warps() -> None:
    check(136, 80, 384, TARGET, "wgmma")


def test_the_code_of_a_product() -> None:
    function = product(4096, 4096, 4096, by_columns="b", dtype=FLOAT8)
    text = assemble(RULES_BY_ADDRESS.schedule(function, TARGET).function)
    assert text.count("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3") == 4
    assert ".local" not in text
    text = assemble(RULES_BY_ADDRESS.schedule(function, WARPS).function, WARPS)
    assert text.count("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32") >= 16


def test_older_gpus_multiply_without_them() -> None:
    old = tw.Target.of("cuda -arch=sm_80")
    s = RULES_BY_ADDRESS.schedule(product(64, 64, 64, by_columns="b", dtype=FLOAT8), old)
    assert not instructions(s)


def test_instructions_of_newer_gpus_are_refused_on_older_ones() -> None:
    s = RULES_BY_ADDRESS.schedule(product(64, 64, 64, by_columns="b", dtype=FLOAT8), WARPS)
    with pytest.raises(tw.UserError, match="GPUs since sm_89 have it"):
        generated(s.function, tw.Target.of("cuda -arch=sm_80"))
