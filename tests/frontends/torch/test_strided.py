"""as_strided: right, or refused where it looks at memory that the model does not see."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch.nets import Call, require_close  # noqa: E402
from tilewright.torch_backend import tilewright  # noqa: E402

BASE = torch.arange(20.0)
SIZES = ((2, 2), (1, 2))
PART = "part of a larger one"


def exported(function: Any, x: Any, *, archived: bool) -> Any:
    program = torch.export.export(Call(function), (x,))
    if not archived:
        return program
    made = io.BytesIO()
    torch.export.save(program, made)
    return made.getvalue()


@pytest.mark.parametrize("archived", [False, True])
def test_elements_of_the_tensor_itself(archived: bool) -> None:
    def function(x: Any) -> Any:
        part = (x * 2).reshape(-1)[3:]
        return x.as_strided(*SIZES), (x + 1).as_strided(*SIZES, 3), part.as_strided(*SIZES)

    for x in (BASE, BASE[5:15], BASE[:10], BASE[4:16].view(3, 4).t()):
        model = tw.compile(exported(function, x, archived=archived))
        require_close(model.run([x]), function(x))


def test_places_count_from_the_start_of_the_memory() -> None:
    x = BASE[5:15]
    model = tw.compile(exported(lambda x: x.as_strided(*SIZES, 7), x, archived=False))
    require_close(model.run([x]), x.as_strided(*SIZES, 7))


@pytest.mark.parametrize("archived", [False, True])
def test_what_looks_around_a_part_is_refused(archived: bool) -> None:
    def of_input(x: Any) -> Any:
        return x.as_strided(*SIZES, 0) + 1

    def of_slice(x: Any) -> Any:
        return (x + 1)[4:8].as_strided(*SIZES, 0)

    cases = [(of_input, BASE[5:15]), (of_slice, BASE), (of_input, BASE[::2])]
    for function, x in cases:
        with pytest.raises(tw.UserError, match=PART):
            tw.compile(exported(function, x, archived=archived))


def test_elements_that_are_written_into_a_tensor() -> None:
    def function(x: Any, y: Any) -> Any:
        plain = torch.as_strided_scatter(x, y, (2, 2), (1, 2), 6)
        return plain, torch.as_strided_scatter(x.view(2, 5).t() * 2, y, (2, 2), (5, 1), 1)

    x, y = BASE[5:15], torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    require_close(tw.compile(Call(function), inputs=(x, y)).run([x, y]), function(x, y))


def test_graphs_of_torch_compile_look_where_their_arguments_lie() -> None:
    """Its guards do not tell apart arguments that lie elsewhere in their memory."""
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return x.as_strided((3,), (2,), 5) * 2

    fast = torch.compile(function, backend=tilewright)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (BASE[5:15], BASE[:10], BASE[6:16]):
            torch.testing.assert_close(fast(x), function(x))
    torch._dynamo.reset()
