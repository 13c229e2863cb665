"""Networks natively on this machine as it is, and as older ones: without AVX-512, without AVX2."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.machines import native_targets, runs_here, without_avx512
from tests.network_cases import CASES, Case
from tilewright.graph import evaluate

#: Vectors of 512 bits in turn with those of 256, also where the machine prefers narrow ones.
TARGETS = [*native_targets(), *filter(runs_here, [without_avx512(), "llvm -mcpu=skylake-avx512"])]


@pytest.mark.parametrize("target", sorted(set(TARGETS)))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_are_those_of_the_reference(case: Case, target: str) -> None:
    graph = case.graph()
    wanted = evaluate(graph, list(case.inputs))
    got = tw.compile(graph, target).run(list(case.inputs))
    for result, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cpu", ["neoverse-n1", "apple-m1", "sapphirerapids", "x86-64-v4"])
def test_code_for_a_machine_that_this_is_not_is_refused(cpu: str) -> None:
    """Not run until the processor, or LLVM, stops the process."""
    target = f"llvm -mcpu={cpu}"
    if runs_here(target):
        pytest.skip("this machine runs it")
    case = CASES[0]
    model = tw.compile(case.graph(), target)
    with pytest.raises(tw.UserError, match="this machine"):
        model.run(list(case.inputs))
