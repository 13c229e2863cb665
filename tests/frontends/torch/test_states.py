"""Programs that change buffers and inputs: states go in, and come out behind the results."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch.nets import Call, require_close  # noqa: E402
from tilewright.frontends.torch import first_states  # noqa: E402


class Counter(torch.nn.Module):
    """Counts its calls, and adds their number to what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.scale.mul_(2)
        return x * self.scale + self.count


def run_beside(source: Any, net: Any, batches: list[Any], inputs: Any = None) -> None:
    """Run a model and a module on batches; states go from each run to the next."""
    model = tw.compile(source, inputs=inputs)
    states = first_states(source, inputs)
    names = [s.name for s in model.inputs]
    assert names[len(names) - len(states) :] == list(states)
    for x in batches:
        results = model.run([x, *states.values()])
        wanted = net(x)
        count = len(results) - len(states)
        require_close(results[:count], wanted)
        assert [s.name for s in model.outputs[count:]] == list(states)
        states = dict(zip(states, results[count:], strict=True))
        buffers = dict(net.named_buffers())
        require_close(list(states.values()), [buffers[name] for name in states])


def test_batch_normalisation_while_it_trains() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).train()
    batches = [torch.randn(5, 4, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    assert set(first_states(net, (batches[0],))) == {
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }
    with torch.no_grad():
        run_beside(copy.deepcopy(net), net, batches, inputs=(batches[0],))


def test_counters() -> None:
    program = torch.export.export(Counter(), (torch.ones(3),))
    run_beside(program, Counter(), [torch.ones(3)] * 3)
    made = io.BytesIO()
    torch.export.save(program, made)
    run_beside(made.getvalue(), Counter(), [torch.ones(3)] * 3)


def test_a_model_does_not_write_to_the_module() -> None:
    net = Counter()
    model = tw.compile(net, inputs=(torch.ones(3),))
    states = first_states(net, (torch.ones(3),))
    model.run([torch.ones(3), *states.values()])
    assert int(net.count) == int(states["count"]) == 0


def test_an_input_that_is_changed_comes_out_behind_the_results() -> None:
    def function(cache: Any, x: Any) -> Any:
        cache[1] = x
        return cache.sum(0)

    cache, x = torch.arange(6.0).reshape(3, 2), torch.tensor([-1.0, -2.0])
    model = tw.compile(Call(function), inputs=(cache.clone(), x))
    given = cache.clone()
    total, changed = model.run([given, x])
    assert torch.equal(given, cache)
    assert model.outputs[1].name == model.inputs[0].name
    wanted = function(given, x)
    require_close([total, changed], [wanted, given])
