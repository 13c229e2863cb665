"""Functions that differ in sizes alone, and models whose kernels share code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import OUT_OF_MEMORY
from tilewright.graph import Builder, Module, evaluate
from tilewright.ir import Function, function_text, interpret, parse_function
from tilewright.kernels import together, workers
from tilewright.kernels.compiled import shared_code
from tilewright.kernels.families import families, narrower
from tilewright.kernels.pipeline import Options
from tilewright.kernels.together import compile_kernels


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MANY", 2)


def rows(count: int, factor: float = 2.0, name: str = "X", unrolled: int = 4) -> Function:
    """A map over rows with a border, scheduled."""
    x = te.placeholder((count + 2, 16), name=name)
    y = te.compute((count, 16), lambda i, j: x[i + 2, j] * factor, name=f"{name}_scaled")
    s = tw.Schedule(te.function([x], [y], name=f"scale_{count}"))
    _, inner = s.split(s.loops(y.name)[1], None, unrolled)
    s.unroll(inner)
    return s.function


def test_numbers_that_differ_become_sizes() -> None:
    functions = [rows(8, name="X"), rows(24, name="Other"), rows(40)]
    (family,) = families([[f] for f in functions])
    assert family.members == (0, 1, 2) and family.sizes == ((1,), (3,), (5,))
    (shared,) = family.parts
    assert [p.name for p in shared.params] == ["size0", "p0", "p1"]
    assert [str(b.shape[0]) for b in shared.buffers] == ["8 * size0 + 2", "8 * size0"]
    assert shared.attrs["at_most"] == [5] and shared.name.startswith("scale_")
    for function, (size,) in zip(functions, family.sizes, strict=True):
        x = np.random.default_rng(size).standard_normal((8 * size + 2, 16)).astype(np.float32)
        own, common = (np.zeros((8 * size, 16), np.float32) for _ in range(2))
        interpret(function, x, own)
        interpret(shared, size, x, common)
        np.testing.assert_array_equal(own, common)


def test_names_of_dimensions_do_not_matter() -> None:
    def scaled(columns: int, count: str) -> Function:
        n = te.var(count)
        x = te.placeholder((n, columns), name="X")
        y = te.compute((n, columns), lambda i, j: x[i, j] * 2.0, name="Y")
        return te.function([x], [y], name="f")

    functions = [scaled(8, "height"), scaled(24, "width")]
    (family,) = families([[f] for f in functions])
    assert family.sizes == ((1,), (3,))
    for function, (size,) in zip(functions, family.sizes, strict=True):
        x = np.random.default_rng(size).standard_normal((5, 8 * size)).astype(np.float32)
        own, common = (np.zeros_like(x) for _ in range(2))
        interpret(function, x, own)
        interpret(family.parts[0], size, x, common)
        np.testing.assert_array_equal(own, common)


def test_names_of_loops_do_not_matter() -> None:
    """Those of a function that was read from text are other ones."""
    read = parse_function(function_text(rows(24)).replace("j_1", "inner"))
    assert len(families([[rows(8)], [read]])) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(rows(8), id="the same"),
        pytest.param(rows(24, factor=3.0), id="another constant"),
        pytest.param(rows(24, unrolled=8), id="another schedule"),
    ],
)
def test_what_differs_in_more_is_no_family(other: Function) -> None:
    assert families([[rows(8)], [other]]) == []


def test_conditions_at_edges_are_the_same_in_a_family() -> None:
    """A tile that ends with the rows of one function and not with those of another."""

    def tiled(count: int) -> Function:
        x = te.placeholder((count, 16), name="X")
        y = te.compute((count, 16), lambda i, j: x[i, j] + 1.0, name="Y")
        s = tw.Schedule(te.function([x], [y], name="f"))
        s.unroll(s.split(s.loops("Y")[0], None, 4)[1])
        return s.function

    assert families([[tiled(6)], [tiled(9)]]) == []
    assert len(families([[tiled(8)], [tiled(12)]])) == 1
    (family,) = families([[tiled(6)], [tiled(14)]])
    assert family.sizes == ((1,), (3,)), "the whole tiles"
    (shared,) = family.parts
    assert str(shared.buffers[0].shape[0]) == "4 * size0 + 2"


def mirrored(columns: int) -> Function:
    """Rows that threads keep by themselves, and read from the end."""
    x = te.placeholder((6, columns), name="X")
    y = te.compute((6, columns), lambda i, j: x[i, j] * 2.0, name="Y")
    z = te.compute((6, columns), lambda i, j: y[i, columns - 1 - j] + 1.0, name="Z")
    s = tw.Schedule(te.function([x], [z], name="mirrored"))
    outer = s.loops("Z")[0]
    s.compute_at("Y", outer)
    s.parallel(outer)
    return s.function


@pytest.mark.parametrize(
    ("columns", "messages"),
    [
        pytest.param((8, 24), (), id="on the stack"),
        pytest.param((1 << 20, 3 << 20), (OUT_OF_MEMORY,), id="on the heap"),
    ],
)
def test_threads_have_memory_for_the_largest_of_a_family(
    columns: tuple[int, int], messages: tuple[str, ...]
) -> None:
    (family,) = families([[mirrored(c)] for c in columns])
    assert family.sizes == ((1,), (3,)), "the last position is known by the size"
    code = shared_code(family.parts, tw.Target.of("llvm"), Options())
    assert code is not None and code.messages == messages


def flattened(height: int, width: int) -> Function:
    """An image as a row: that accesses lie inside is known by height · width alone."""
    x = te.placeholder((height, width), name="X")
    y = te.compute((height * width,), lambda i: x[i // width, i % width] + 1.0, name="Y")
    return te.function([x], [y], name=f"flattened_{height}_{width}")


def test_where_not_all_can_share_those_of_one_size_more_do() -> None:
    shapes = [(64, 512), (192, 512), (320, 512), (64, 1536), (320, 2560)]
    functions = [flattened(*shape) for shape in shapes]
    # With vectors of eight floats, steps of three of them end differently in each.
    target, options = tw.Target.of("llvm -mcpu=skylake-avx512 -num-cores=4"), Options()
    (family,) = families([[f] for f in functions])
    assert shared_code(family.parts, target, options) is None
    (inner,) = narrower(family, [[f] for f in functions])
    assert inner.members == (0, 1, 2) and inner.sizes == ((1,), (3,), (5,))
    made = compile_kernels(functions, target, [options] * len(functions))
    assert [bool(kernel.sizes) for kernel in made] == [True, True, True, False, False]


# ---- models -------------------------------------------------------------------------------------


def stages(rows: Any = 48) -> Module:
    """Products of weights with several batches, which are packed once, and maps."""
    rng = np.random.default_rng(0)
    b = Builder()
    for batches in (2, 4, 6):
        x = b.input(f"x{batches}", "f32", (batches, rows, 64))
        w = rng.standard_normal((batches, 64, 96)).astype(np.float32)
        b.output(b.softmax(b.matmul(x, w), axis=-1))
    return b.build()


def arguments(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    return [rng.standard_normal((k, rows, 64)).astype(np.float32) for k in (2, 4, 6)]


def require_right(model: Any, module: Module, count: int) -> None:
    given = arguments(count)
    for found, expected in zip(model.run(given), evaluate(module, given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def shared_by(model: Any) -> dict[str, list[Any]]:
    return dict(model.ir().attrs.get("shared", {}))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_kernels_of_a_model_share_code(target: str) -> None:
    module = stages()
    model = tw.compile(module, target=target)
    assert isinstance(model, tw.Model)
    shared = shared_by(model)
    assert set(shared) == set(model.kernels)
    assert len({code for code, *_ in shared.values()}) < len(shared)
    require_right(model, module, 48)


def test_sizes_of_calls_and_of_families_go_together() -> None:
    module = stages("n")
    model = tw.compile(module)
    assert shared_by(model)
    for count in (1, 7, 48, 65):
        require_right(model, module, count)


def test_small_models_do_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MANY", 64)
    module = stages()
    model = tw.compile(module)
    assert not shared_by(model)
    require_right(model, module, 48)


def test_shared_code_is_saved_and_profiled(tmp_path: Path) -> None:
    module = stages("n")
    model = tw.compile(module)
    model.save(tmp_path / "model.tw")
    require_right(tw.load(tmp_path / "model.tw"), module, 30)
    names = {event.name for event in model.profile(arguments(30)).events}
    assert names == set(shared_by(model)), "kernels keep their names"


def test_a_plan_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    module = stages()
    first = tw.compile(module)

    def refuse(*_: Any) -> Any:
        raise AssertionError("this was compiled already")

    monkeypatch.setattr(workers, "perform", refuse)
    again = tw.compile(module)
    assert shared_by(first) == shared_by(again) != {}
    require_right(again, module, 48)


def test_what_cannot_be_proved_for_all_sizes_is_not_shared() -> None:
    """Offsets that one size does not tell: each kernel is compiled by itself."""
    b = Builder()
    x = b.input("x", "f32", (40, "n"))
    for first, count in ((3, 8), (5, 16), (1, 24)):
        b.output(b.gather(x, np.arange(first, first + count, dtype=np.int64)[::-1].copy(), axis=0))
    module = b.build()
    model = tw.compile(module)
    given = np.random.default_rng(0).standard_normal((40, 33)).astype(np.float32)
    for found, expected in zip(model.run([given]), evaluate(module, [given]), strict=True):
        np.testing.assert_array_equal(found, expected)
