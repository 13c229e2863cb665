"""Faults in passes and in what makes native code of graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.reproducers.faults import Array, Break, fault_of, has_op, require_no_weights
from tilewright.graph import Builder, Module, PassContext, PassVerifier, parse_module
from tilewright.graph.rewriting.parts import module_part
from tilewright.reproducers import read_reproducer, run_again


def fails_on_softmax(module: Module) -> bool:
    return has_op(module, "softmax")


def test_a_pass_that_fails_is_named_with_its_node(
    network: Module, weights: list[Array], break_pass: Break, folder: Path
) -> None:
    break_pass("tail_recursion", fails_on_softmax, KeyError("softmax"))
    error = fault_of(network)
    assert error.places == {"node": "softmax", "pass": "tail_recursion"}
    assert isinstance(error.__cause__, KeyError)
    (path,) = folder.iterdir()
    assert error.reproducer == str(path)
    message = str(error)
    assert "pass tail_recursion failed: KeyError: 'softmax'" in message
    assert "in node softmax" in message and f"please report it, with the file {path}" in message
    text = path.read_text()
    require_no_weights(text, weights)
    r = read_reproducer(path)
    assert (r.kind, r.name, r.nodes, r.fails) == ("pass", "tail_recursion", ("softmax",), True)
    assert len(parse_module(r.subject).main.body) == 1
    assert "in broken" in r.failure.traceback and str(Path.home()) not in text


def test_a_reproducer_fails_until_the_fault_is_mended(
    network: Module, break_pass: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_pass("tail_recursion", fails_on_softmax, KeyError("softmax"))
    r = read_reproducer(fault_of(network).reproducer or "")
    assert r.failure.is_like(run_again(r))
    break_pass("tail_recursion", fails_on_softmax, ValueError("another"))
    again = run_again(r)
    assert again is not None and not r.failure.is_like(again)
    monkeypatch.undo()
    assert run_again(r) is None


def test_what_takes_two_bindings_keeps_two(network: Module, break_pass: Break) -> None:
    def fails(module: Module) -> bool:
        return has_op(module, "softmax") and has_op(module, "exp")

    break_pass("tail_recursion", fails, AssertionError("both"))
    r = read_reproducer(fault_of(network).reproducer or "")
    assert r.fails and len(parse_module(r.subject, blank=True).main.body) == 2


def test_weights_are_replaced_where_the_fault_needs_some(
    network: Module, weights: list[Array], break_pass: Break
) -> None:
    def fails(module: Module) -> bool:
        products = [b for b in module.main.body if "matmul" in str(b)]
        return any(v is not None and v.is_constant for b in products for v in b.expr.args)

    break_pass("tail_recursion", fails, AssertionError("a product by weights"))
    r = read_reproducer(fault_of(network).reproducer or "")
    assert r.fails and "const f32[16, 16]" in r.subject
    require_no_weights(r.text(), weights)
    assert r.failure.is_like(run_again(r))


def test_what_only_fails_with_the_weights_shows_its_structure(
    network: Module, weights: list[Array], break_pass: Break
) -> None:
    def fails(module: Module) -> bool:
        used = [v for b in module.main.body for v in b.expr.args if v is not None]
        return any(v.constant is weights[0] for v in used) or any(
            v.constant is not None and np.array_equal(v.constant, weights[0]) for v in used
        )

    break_pass("tail_recursion", fails, ValueError(f"bad weight {weights[0][0, 0]}"))
    error = fault_of(network)
    r = read_reproducer(error.reproducer or "")
    assert not r.fails and "with the weights of the model alone" in r.note
    assert (
        "const f32[16, 16]" in r.subject and len(parse_module(r.subject, blank=True).main.body) == 1
    )
    require_no_weights(r.text(), weights)


def test_what_cannot_be_run_again_is_told_as_far_as_it_is_known(
    network: Module, weights: list[Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.graph import passes

    def tail_recursion(module: Module) -> Module:
        for binding in module.main.body:
            if "softmax" in str(binding) and network.main.body[0] is module.main.body[0]:
                raise KeyError(binding)
        return module

    monkeypatch.setattr(passes, "tail_recursion", tail_recursion)
    error = fault_of(network)
    r = read_reproducer(error.reproducer or "")
    assert not r.fails and "once its graph is written and read" in r.note
    assert error.places["node"] == "softmax" and "softmax(" in r.subject
    require_no_weights(r.text(), weights)


def test_small_constants_that_are_weights_are_replaced(break_pass: Break) -> None:
    b = Builder()
    x = b.input("x", "f32", (4,))
    b.output(b.exp(x * np.array([0.123, 4.567, 7.891, 2.345], "f4")) + 3.25)
    break_pass("tail_recursion", lambda m: has_op(m, "mul"), KeyError("mul"))
    r = read_reproducer(fault_of(b.build()).reproducer or "")
    assert r.fails and not any(t in r.text() for t in ("0.123", "4.567", "7.891", "2.345"))


def test_what_is_inside_a_branch_is_taken_out(break_pass: Break) -> None:
    text = """
def main(c: bool[()], x: f32[4]):
    def then():
        y = exp(x)
        z = softmax(y)
        return z
    def otherwise():
        return x
    z = branch(c, then, otherwise)
    return z
"""
    break_pass("tail_recursion", fails_on_softmax, KeyError("softmax"))
    r = read_reproducer(fault_of(parse_module(text)).reproducer or "")
    assert r.fails and "branch" not in r.subject and "exp" not in r.subject


def test_the_host_program(
    network: Module, weights: list[Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tilewright.lower

    def failing(function: Any) -> Any:
        raise AssertionError("no place for it")

    with monkeypatch.context() as patch:
        patch.setattr(tilewright.lower, "lower_host", failing)
        error = fault_of(network, opt_level=0)
        assert error.places["step"] == "host program" and error.places["node"]
        r = read_reproducer(error.reproducer or "")
        assert (r.kind, r.fails) == ("graph", True)
        assert len(parse_module(r.subject, blank=True).main.body) == 1
        require_no_weights(r.text(), weights)
        assert r.failure.is_like(run_again(r))
    assert run_again(r) is None


def test_loading_is_inside_the_border(network: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    import tilewright.models.model as model

    def failing(*_: Any) -> Any:
        raise RuntimeError("cannot be loaded")

    monkeypatch.setattr(model, "host_code", failing)
    error = fault_of(network)
    assert error.places["step"] == "native code" and error.reproducer


def test_options_travel_along(network: Module, break_pass: Break) -> None:
    def fails(module: Module) -> bool:
        return PassContext.current().option("fold_limit", 0) == 7

    break_pass("tail_recursion", fails, KeyError("limit"))
    with PassContext(options={"fold_limit": 7, "other": object()}, disabled_passes={"fuse"}):
        r = read_reproducer(fault_of(network, opt_level=2).reproducer or "")
    assert r.fails and r.conditions.opt_level == 2
    assert r.conditions.disabled_passes == ("fuse",) and r.conditions.options == {"fold_limit": 7}


def test_a_pass_that_breaks_the_graph(network: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.graph import passes

    def dead_code(module: Module) -> Module:
        return Module([module.main.with_(module.main.body[1:])])

    monkeypatch.setattr(passes, "dead_code", dead_code)
    with PassContext(instruments=[PassVerifier()]):
        error = fault_of(network, opt_level=0)
    assert "the pass dead_code broke the module" in str(error) and error.reproducer is not None


def test_a_stack_that_overflows_is_a_fault(network: Module, break_pass: Break) -> None:
    def endless(module: Module) -> bool:
        return endless(module)

    break_pass("tail_recursion", endless, KeyError())
    error = fault_of(network)
    assert "RecursionError" in str(error) and read_reproducer(error.reproducer or "").fails


def test_too_little_memory_is_no_fault(network: Module, break_pass: Break, folder: Path) -> None:
    break_pass("tail_recursion", lambda _: True, MemoryError("Unable to allocate 1. TiB"))
    with pytest.raises(tw.UserError, match="not enough memory: Unable to allocate"):
        tw.compile(network)
    assert not list(folder.iterdir())


def test_what_the_system_refuses_is_no_fault(network: Module, break_pass: Break) -> None:
    break_pass("tail_recursion", lambda _: True, OSError(28, "No space left on device"))
    with pytest.raises(tw.UserError, match="No space left on device"):
        tw.compile(network)


def test_an_interrupt_stays_one(network: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.graph import passes

    def tail_recursion(module: Module) -> Module:
        raise KeyboardInterrupt

    monkeypatch.setattr(passes, "tail_recursion", tail_recursion)
    with pytest.raises(KeyboardInterrupt):
        tw.compile(network)


def test_instruments_are_the_users(network: Module) -> None:
    class Curious:
        def before(self, name: str, module: Module) -> None:
            raise ZeroDivisionError("by zero")

    with (
        PassContext(instruments=[Curious()]),  # pyright: ignore[reportArgumentType]
        pytest.raises(tw.UserError, match="the instrument Curious failed before the pass"),
    ):
        tw.compile(network)


def test_build_saves_one_as_well(network: Module, break_pass: Break) -> None:
    break_pass("tail_recursion", fails_on_softmax, KeyError("softmax"))
    with pytest.raises(tw.InternalError) as caught:
        tw.build(network, checked=True)
    assert read_reproducer(caught.value.reproducer or "").conditions.checked


def test_a_part_takes_what_it_captures() -> None:
    text = """
def main(c: bool[()], x: f32[4], w: const f32[16]):
    a = exp(x)
    def then():
        y = relu(a)
        return y
    def otherwise():
        return x
    z = branch(c, then, otherwise)
    return z
"""
    module = parse_module(text, {"w": np.zeros(16, "f4")})
    part = module_part(module, module.main.body[1:])
    assert [p.name for p in part.main.params] == ["c", "a", "x"]
    assert [r.name for r in part.main.results] == ["z"]
