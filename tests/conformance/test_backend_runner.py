"""ONNX's own runner of its cases, driven through our back end: what other back ends are held to."""

from __future__ import annotations

import unittest
import warnings
from collections import Counter
from typing import Any

import onnx.backend.test
import pytest

import tilewright.onnx_backend as backend

#: Operators, old models out of files, control flow, sequences, texts and narrow types.
CASES = """
test_add_bcast test_gemm_all_attributes test_softmax_axis_1 test_conv_with_strides_padding
test_lstm_defaults test_nonzero_example test_if test_identity_sequence test_string_split_basic
test_cast_FLOAT_to_BFLOAT16 test_Linear test_operator_mm test_single_relu_model
test_expand_shape_model1
""".split()


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = onnx.backend.test.BackendTest(backend, __name__)  # type: ignore[arg-type]
    for name in CASES:
        runner.include(f"^{name}_(cpu|cuda)$")
    kinds = runner.test_cases.values()
    return [
        case for kind in kinds for case in unittest.defaultTestLoader.loadTestsFromTestCase(kind)
    ]


@pytest.mark.filterwarnings("ignore:parts of the model run on the host")
def test_cases_pass(cases: list[Any]) -> None:
    result = unittest.TestResult()
    for case in cases:
        case.run(result)
    assert not result.failures and not result.errors
    reasons = Counter(reason for _, reason in result.skipped)
    assert reasons["Backend doesn't support device CUDA"] == len(CASES)
    assert len(cases) - len(result.skipped) == len(CASES)
