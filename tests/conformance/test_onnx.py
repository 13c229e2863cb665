"""ONNX's own cases through our front end; `known_failures.py` lists those that do not pass.

Cases are grouped into chunks, so that workers share them and each loads them once. Of operators
that are spelled out by others, which are a quarter of the cases, this is a sample; `make
test-conformance` takes all. The environment variable TILEWRIGHT_RUNNER chooses how models are run
(see `runners.py`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("PIL", reason="images are decoded by Pillow")
if tuple(map(int, onnx.__version__.split(".")[:2])) != (1, 23):
    pytest.skip("the table of failures is that of onnx 1.23", allow_module_level=True)

from tests.conformance.cases import Case, chunk, has_same_type, is_close, load_cases  # noqa: E402
from tests.conformance.known_failures import KNOWN_FAILURES, RANDOM  # noqa: E402
from tests.conformance.runners import RUNNERS  # noqa: E402

_RUN = RUNNERS[os.environ.get("TILEWRIGHT_RUNNER", "compile")]
#: Short enough for a busy machine: a test ends after 300 seconds.
_CHUNKS = {"node": 64, "simple": 1, "pytorch-converted": 2, "pytorch-operator": 1}
_ALL = os.environ.get("TILEWRIGHT_CONFORMANCE") == "all"
#: Of cases whose operators are spelled out by others, one in so many.
_SPELLED_OUT = 1 if _ALL else 4
_COUNTS = {"node": 1884, "simple": 23, "pytorch-converted": 82, "pytorch-operator": 35}


@pytest.mark.parametrize(
    ("kind", "index"), [(kind, k) for kind, count in _CHUNKS.items() for k in range(count)]
)
def test_cases(kind: str, index: int) -> None:
    cases = chunk(_sample(load_cases(kind)), index, _CHUNKS[kind])
    found = {f"{kind}/{c.name}": _failure(kind, c) for c in cases}
    failed = {name: why for name, why in found.items() if why}
    unexpected = [f"{n}: {why}" for n, why in failed.items() if n not in KNOWN_FAILURES]
    mended = [n for n in found if n in KNOWN_FAILURES and n not in failed]
    assert not unexpected, "cases fail:\n" + "\n".join(unexpected)
    assert not mended, "cases pass; remove them from known_failures.py: " + ", ".join(mended)


def _sample(cases: Sequence[Case]) -> list[Case]:
    plain = [c for c in cases if "_expanded" not in c.name]
    return [*plain, *[c for c in cases if "_expanded" in c.name][::_SPELLED_OUT]]


def _failure(kind: str, case: Case) -> str:
    """Why a case does not pass; nothing where it does."""
    compare = _has_types if f"{kind}/{case.name}" in RANDOM else is_close
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for inputs, wanted in case.data:
                if not compare(list(_RUN(case.model, inputs)), wanted, case.rtol, case.atol):
                    return "wrong results"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _has_types(got: list[Any], want: list[Any], rtol: float, atol: float) -> bool:
    del rtol, atol
    pairs = zip(got, want, strict=True)
    return all(has_same_type(np.asarray(g), np.asarray(w)) for g, w in pairs)


@pytest.mark.parametrize("kind", sorted(_COUNTS))
def test_all_cases_are_there(kind: str) -> None:
    assert len(load_cases(kind)) == _COUNTS[kind]


def test_the_table_names_cases_and_stays_short() -> None:
    names = {f"{kind}/{c.name}" for kind in _COUNTS for c in load_cases(kind)}
    assert set(KNOWN_FAILURES) | RANDOM <= names
    assert len(KNOWN_FAILURES) + len(RANDOM) <= 0.02 * sum(_COUNTS.values())
