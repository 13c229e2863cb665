"""Whole networks as libraries of Windows, linked into a program and run by Wine, beside NumPy."""

from __future__ import annotations

import os
import platform

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.emulator import needed_windows
from tests.network_cases import CASES, Case
from tilewright.graph import evaluate

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TILEWRIGHT_EMULATE") != "all", reason="`make test-emulated` runs it"
    ),
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="Wine runs programs of the machine it is on"
    ),
]


@pytest.mark.parametrize("environment", ["gnu", "msvc"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_are_those_of_the_reference(case: Case, environment: str) -> None:
    emulator, graph = needed_windows(), case.graph()
    wanted = evaluate(graph, list(case.inputs))
    target = f"llvm -mtriple=x86_64-pc-windows-{environment} -mcpu=x86-64-v3 -num-cores=2"
    made = emulator.run_model(tw.compile(graph, target), case.inputs, wanted)
    for got, want in zip(made, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
