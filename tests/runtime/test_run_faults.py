"""Faults of our own while a model runs: told with the model and what it was run on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder
from tilewright.runtime import RunnableModel


class Failing(RunnableModel):
    """A model that cannot be run."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    @property
    def inputs(self) -> Any:
        return ()

    @property
    def outputs(self) -> Any:
        return ()

    def outputs_for(self, inputs: Any, out: Any) -> list[Any]:
        raise self.error


def test_the_model_and_its_inputs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", ("n", 4))))
    model = tw.compile(b.build())

    def failing(*_: Any) -> Any:
        raise AttributeError("no words")

    monkeypatch.setattr(model, "_run", failing)
    with pytest.raises(tw.InternalError) as caught:
        model.run({"x": np.zeros((2, 4), np.float32)})
    text = str(caught.value)
    assert "running the model failed: AttributeError: no words" in text
    assert "in model <Model (x: float32[n, 4]) -> (relu: float32[n, 4])" in text
    assert "in call run(x: float32[2, 4])" in text
    assert isinstance(caught.value.__cause__, AttributeError)
    with pytest.raises(tw.InternalError, match=r"run\(0: float32\[3, 4\]\)"):
        model(np.zeros((3, 4), np.float32))


@pytest.mark.parametrize("inputs", [None, [], [3, "x"], {"x": object()}, 7])
def test_whatever_the_inputs_are(inputs: Any) -> None:
    with pytest.raises(tw.InternalError, match="KeyError: 'k'"):
        Failing(KeyError("k")).run(inputs)


def test_what_is_no_fault_stays() -> None:
    with pytest.raises(tw.UserError, match="not enough memory: 1 TiB"):
        Failing(MemoryError("1 TiB")).run([])
    with pytest.raises(KeyboardInterrupt):
        Failing(KeyboardInterrupt()).run([])
    refused = tw.UserError("no such input")
    with pytest.raises(tw.UserError) as caught:
        Failing(refused).run([])
    assert caught.value is refused
