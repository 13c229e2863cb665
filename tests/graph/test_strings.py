"""Operators on strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.graph import Builder, evaluate
from tilewright.support.errors import UserError


def words(*texts: Any) -> Any:
    return np.array(texts, object)


def run(name: str, *arrays: Any, **attrs: Any) -> list[Any]:
    b = Builder("main")
    inputs = [b.input(f"x{k}", "string", a.shape) for k, a in enumerate(arrays)]
    results = b.emit(name, *inputs, **attrs)
    b.output(*(results if isinstance(results, tuple) else (results,)))
    return evaluate(b.build(), arrays)


def test_concat_broadcasts() -> None:
    (got,) = run("string_concat", words("a", "b"), words(["x"], ["yy"]))
    assert got.tolist() == [["ax", "bx"], ["ayy", "byy"]]


@pytest.mark.parametrize(
    ("attrs", "parts", "counts"),
    [
        ({}, [["a", "b"], ["c", ""], ["", ""]], [2, 1, 0]),
        ({"separator": " "}, [["a", "", "b"], ["c", "", ""], ["", "", ""]], [3, 1, 1]),
        ({"most": 0}, [["a  b"], ["c"], [""]], [1, 1, 0]),
    ],
)
def test_split(attrs: dict, parts: list, counts: list) -> None:
    got, found = run("string_split", words("a  b", "c", ""), **attrs)
    assert got.tolist() == parts
    assert found.tolist() == counts


def test_split_of_nothing() -> None:
    got, counts = run("string_split", np.empty((2, 0), object))
    assert got.shape == (2, 0, 0)
    assert counts.shape == (2, 0)


def test_normalize() -> None:
    x = words("Monday", "tuesday", "MONDAY")
    assert run("string_normalize", x, case="upper", stopwords=["monday"])[0].tolist() == ["TUESDAY"]
    kept = run("string_normalize", x, stopwords=["MONDAY"], case_sensitive=True)[0]
    assert kept.tolist() == ["Monday", "tuesday"]
    assert run("string_normalize", words(["a"]), stopwords=["A"])[0].tolist() == [[""]]


def test_whole_strings_match() -> None:
    got = run("regex_match", words("a1", "a1b", ""), pattern=r"[a-z]\d")[0]
    assert got.tolist() == [True, False, False]


def test_what_is_refused() -> None:
    b = Builder("main")
    numbers, texts = b.input("n", "f32", (2,)), b.input("s", "string", (2,))
    with pytest.raises(UserError, match="no tensor of strings"):
        b.string_concat(texts, numbers)
    with pytest.raises(UserError, match="no regular expression"):
        b.regex_match(texts, pattern="(")
    with pytest.raises(UserError, match="use none, lower or upper"):
        b.string_normalize(texts, case="title")
