"""Modules, exported programs and archives, compiled and held against torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tests.frontends.torch.nets import Call, SmallResnet, check, require_close  # noqa: E402
from tilewright.frontends import from_torch  # noqa: E402

X = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)


def test_a_network_of_blocks() -> None:
    net = SmallResnet().eval()
    model = tw.compile(net, inputs=(X,), shapes={"x": ["n", 3, 16, 16]})
    assert str(model.inputs[0]) == "x: float32[n, 3, 16, 16]"
    for batch in (1, 2, 3):
        x = torch.randn(batch, 3, 16, 16)
        with torch.no_grad():
            require_close(model.run([x]), net(x))
            require_close(model.run({"x": x.numpy()}), net(x))


def test_an_exported_program_and_its_archive(tmp_path: Path) -> None:
    net = SmallResnet().eval()
    batch = torch.export.Dim("batch", min=1, max=6)
    program = torch.export.export(net, (X,), dynamic_shapes=({0: batch},))
    path = tmp_path / "net.bin"
    torch.export.save(program, path)
    x = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        wanted = net(x)
    for source in (program, path, path.read_bytes()):
        model = tw.compile(source)
        require_close(model.run([x]), wanted)
    with pytest.raises(tw.UserError, match="must be at most 6"):
        model.run([torch.randn(7, 3, 16, 16)])
    with pytest.raises(tw.UserError, match="must be at most 6"):
        tw.compile(program, shapes={"x": [7, 3, 16, 16]})


def test_outputs_come_in_the_order_of_the_tree() -> None:
    def function(x: Any) -> dict:
        return {"b": (x + 1, [x * 2]), "a": x, "size": x.shape[0], "none": None}

    model = tw.compile(Call(function), inputs=(torch.arange(3.0),))
    plus, twice, same, size = model.run([torch.arange(3.0)])
    assert plus.tolist() == [1, 2, 3]
    assert twice.tolist() == [0, 2, 4]
    assert same.tolist() == [0, 1, 2]
    assert int(size) == 3


def test_inputs_may_be_given_by_name() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, *, factor: Any) -> Any:
            return x * factor

    given = {"x": torch.ones(3), "factor": torch.full((3,), 2.0)}
    model = tw.compile(Scaled(), inputs=given)
    assert model.run(given)[0].tolist() == [2, 2, 2]


def test_tied_weights_are_one_constant_over_their_own_memory() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(11, 4)
            self.head = torch.nn.Linear(4, 11, bias=False)
            self.head.weight = self.table.weight

        def forward(self, i: Any) -> Any:
            return self.head(self.table(i))

    net = Tied()
    i = torch.tensor([1, 5, 7])
    module = from_torch(net, (i,))
    operands = {id(v): v for b in module.main.body for v in b.expr.args if v is not None}
    constants = [v.constant for v in operands.values() if v.constant is not None]
    (weight,) = [c for c in constants if c.size == 44]
    assert weight.ctypes.data == net.table.weight.data_ptr()
    check(net, i)


def test_a_tensor_of_bfloat16_crosses_without_a_copy() -> None:
    x = torch.linspace(-2, 2, 24).reshape(4, 6).bfloat16()
    model = tw.compile(Call(lambda x: x * 2 + 1), inputs=(x,))
    (y,) = model.run([x])
    assert y.dtype.name == "bfloat16"
    np.testing.assert_array_equal(y.astype(np.float32), (x * 2 + 1).float().numpy())


# ---- what is refused ----------------------------------------------------------------------------


def test_a_module_needs_an_example() -> None:
    with pytest.raises(tw.UserError, match="without inputs") as error:
        tw.compile(SmallResnet())
    assert "inputs=(x, …)" in error.value.remedy


def test_shapes_must_name_inputs() -> None:
    with pytest.raises(tw.UserError, match="shapes names the input y"):
        tw.compile(SmallResnet().eval(), inputs=(X,), shapes={"y": ["n", 3, 16, 16]})


def test_missing_operators_are_listed_at_once() -> None:
    def function(x: Any) -> Any:
        return torch.linalg.eigvals(x).abs() + torch.rand(3)

    with pytest.raises(tw.UserError, match="does not know") as error:
        tw.compile(Call(function), inputs=(torch.eye(3),))
    assert "aten::linalg_eig" in error.value.listing or "eigvals" in error.value.listing
    assert "aten::rand" in error.value.listing


def test_what_torch_cannot_take_apart_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise NotImplementedError("no meta kernel")

    random = torch.export.export(Call(lambda x: x + torch.rand(3)), (torch.ones(3),))
    changed = torch.export.export(Call(lambda x: x.clone().add_(1)), (torch.ones(3),))
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", fail)
    with pytest.raises(tw.UserError, match="does not know") as error:
        tw.compile(random)
    assert "aten::rand" in error.value.listing
    with pytest.raises(tw.UserError, match=r"cannot take the operators .* no meta kernel"):
        tw.compile(changed)


def test_complex_numbers_do_not_cross_the_border() -> None:
    x = torch.ones(3, dtype=torch.complex64)
    with pytest.raises(tw.UserError, match="do not cross the border"):
        tw.compile(Call(lambda x: x * 2), inputs=(x,))
