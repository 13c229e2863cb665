"""torch.compile with our back end, held against eager torch."""

from __future__ import annotations

import copy
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch.nets import SmallResnet  # noqa: E402
from tilewright import torch_backend  # noqa: E402
from tilewright.torch_backend import tilewright  # noqa: E402


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(net: Any, **options: Any) -> Any:
    return torch.compile(net, backend=tilewright, options=options)


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_torch_finds_the_back_end_by_its_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    row = project["project"]["entry-points"]["torch_dynamo_backends"]["tilewright"]
    assert resolve_name(row) is tilewright


def test_batches_of_all_sizes_by_two_graphs() -> None:
    net = SmallResnet().eval()
    fast, before = compiled(net), graphs()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for batch in (2, 3, 5, 7):
            x = torch.randn(batch, 3, 16, 16)
            torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-5)
    assert graphs() - before == 2


def test_nothing_is_called_between_dynamo_and_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What AOTAutograd puts around a graph takes longer than small models; most have no need."""
    entered, real = list[str](), torch_backend._backends.aot_autograd

    def counted(**options: Any) -> Any:
        def compiler(gm: Any, inputs: Any) -> Any:
            wrapped = real(**options)(gm, inputs)
            return lambda *args: entered.append("once") or wrapped(*args)

        return compiler

    monkeypatch.setattr(torch_backend._backends, "aot_autograd", counted)
    net, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    fast, changing = compiled(net), compiled(lambda x: (x.add_(1), x * 2)[1])
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), net(x))
        assert len(entered) == 1
        net.weight.mul_(2)
        torch.testing.assert_close(fast(x), net(x))
        assert len(entered) == 2
        for _ in range(3):
            assert changing(torch.zeros(2)).eq(2).all()
        assert len(entered) == 5


def test_weights_that_change_are_noticed() -> None:
    net = torch.nn.Linear(4, 3)
    fast, x = compiled(net), torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(fast(x), net(x))
            net.weight.mul_(2)


def test_weights_of_inference_mode_are_inputs() -> None:
    """They have no version that would tell of changes."""
    with torch.inference_mode():
        net = torch.nn.Linear(4, 3)
        fast, x = compiled(net), torch.randn(2, 4)
        for _ in range(2):
            torch.testing.assert_close(fast(x), net(x))
            net.weight.mul_(2)


def test_gradients_are_right() -> None:
    net = SmallResnet().train()
    twin = copy.deepcopy(net)
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    compiled(net)(x).square().sum().backward()
    twin(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-4)
    for fast, eager in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(fast.grad, eager.grad, rtol=1e-3, atol=1e-4)
    # Training changes the running moments, too.
    for fast, eager in zip(net.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(fast, eager)


def test_aliases_and_mutations() -> None:
    def function(x: Any, y: Any) -> Any:
        y.add_(1)
        return x.view(-1), x, x * 2 + y, x.t()

    x, y = torch.randn(3, 4), torch.zeros(3, 4)
    flat, same, total, turned = compiled(function)(x, y)
    assert flat.data_ptr() == x.data_ptr() == turned.data_ptr()
    assert same is x
    assert y.eq(1).all()
    torch.testing.assert_close(total, x * 2 + 1)


def test_sizes_that_depend_on_data() -> None:
    def function(x: Any) -> Any:
        return x[x > 0] * 2, x.nonzero()

    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("error", message="tilewright runs a graph eagerly")
        fast = compiled(function)
        for k in range(2):
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(k))
            torch.testing.assert_close(fast(x), function(x))


def test_pieces_between_graph_breaks() -> None:
    def function(x: Any) -> Any:
        y = x.sin()
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(5)
    torch.testing.assert_close(compiled(function)(x), x.sin() * 2)


def test_what_cannot_be_compiled_runs_eagerly_with_one_warning() -> None:
    def function(x: Any) -> Any:
        return torch.linalg.eigvals(x).abs() + 1

    x = torch.eye(3)
    with pytest.warns(UserWarning, match="_linalg_eigvals|linalg_eig") as told:
        result = compiled(function)(x)
        compiled(function)(x + 0)
    assert len([w for w in told if "eagerly" in str(w.message)]) == 1
    torch.testing.assert_close(result, torch.full((3,), 2.0))


def test_types_that_numpy_lacks_and_numbers_cross_the_border() -> None:
    def function(x: Any, k: int) -> Any:
        return x * k, x.shape[0] * 2

    negated = torch.conj(torch.tensor([1 + 2j, 3 - 4j])).imag
    assert negated.is_neg()
    assert torch.equal(compiled(lambda x: x * 2)(negated), torch.tensor([-4.0, 8.0]))
    x = torch.arange(6).bfloat16()
    twice, size = torch.compile(function, backend=tilewright, dynamic=True)(x, 3)
    assert twice.dtype == torch.bfloat16
    assert torch.equal(twice, x * 3)
    assert size == 12


def test_options() -> None:
    x = torch.randn(3, 4)
    fast = compiled(torch.nn.Linear(4, 3), threads=1, opt_level=1, precision="float32")
    with torch.no_grad():
        assert fast(x).shape == (3, 3)
    with pytest.raises(Exception, match="there is no option thread") as error:
        compiled(torch.nn.Linear(4, 3), thread=1)(x)
    assert "threads" in str(error.value)
    assert tw.UserError.__name__ in repr(error.value) + str(error.value)
