"""Copies that each of their readers makes by itself: kernels of GPUs choose between elements."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.compile import graph_passes
from tilewright.graph import Module, PassContext, PassVerifier, parse_module, run_passes
from tilewright.graph.fusion.sharing import is_shared
from tilewright.graph.ir import Call, Fused
from tilewright.target import Target

#: Rotary embedding, as models spell it out.
ROTARY = """
def main(x: f32[1, {n}, 4, 6], c: f32[{n}, 6], s: f32[{n}, 6]):
    h = slice(x, starts=[{start}], ends=[{end}], axes=[2])
    t = transpose(h, axes=[0, 2, 1, 3])
    a = mul(t, c)
    low = slice(t, starts=[0], ends=[3], axes=[3])
    high = slice(t, starts=[3], ends=[6], axes=[3])
    m = neg(high)
    r = concat(m, low, axis=-1)
    b = mul(r, s)
    y = add(a, b)
    return y
"""


def kernels(module: Module, target: str) -> int:
    with PassContext(instruments=[PassVerifier()]):
        made = run_passes(module, graph_passes(Target.of(target)))
    return sum(isinstance(b.expr, Call | Fused) and not is_shared(b) for b in made.main.body)


def rotated(x: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    t = x.transpose(0, 2, 1, 3)
    return t * c + np.concatenate([-t[..., 3:], t[..., :3]], -1) * s


@pytest.mark.parametrize(("start", "end"), [(0, 4), (0, 3), (1, 3)])
@pytest.mark.parametrize("n", ["5", "n", "1"])
def test_rotary_embedding_is_one_kernel(start: int, end: int, n: str) -> None:
    module = parse_module(ROTARY.format(n=n, start=start, end=end))
    assert kernels(module, "simt") == 1 < kernels(module, "llvm")
    rng = np.random.default_rng(0)
    rows = int(n) if n.isdigit() else 7
    x, c, s = (
        rng.standard_normal(d).astype("float32") for d in [(1, rows, 4, 6), (rows, 6), (rows, 6)]
    )
    got = tw.compile(module, "simt")(x, c, s)
    np.testing.assert_allclose(got, rotated(x[:, :, start:end], c, s), rtol=1e-6, atol=1e-6)


def test_parts_that_are_computed_are_joined_by_one_kernel() -> None:
    module = parse_module("""
def main(x: f32[4, 5], y: f32[4, 2]):
    a = exp(x)
    b = tanh(y)
    z = concat(a, b, x, axis=-1)
    return z
""")
    assert kernels(module, "simt") == 1
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(d).astype("float32") for d in [(4, 5), (4, 2)])
    want = np.concatenate([np.exp(x), np.tanh(y), x], -1)
    np.testing.assert_allclose(tw.compile(module, "simt")(x, y), want, rtol=1e-6)


@pytest.mark.parametrize(
    "reader",
    [
        "a = sum(t, axes=[2])",
        "a = matmul(t, t)",
        "a = transpose(t, axes=[2, 1, 0])",
    ],
)
def test_a_copy_for_other_readers_is_made_once(reader: str) -> None:
    """Reductions and products would make it again and again; transposes stand alone."""
    module = parse_module(f"""
def main(x: f32[4, 4, 4]):
    t = transpose(x, axes=[1, 0, 2])
    {reader}
    b = exp(t)
    return a, b
""")
    with PassContext():
        made = run_passes(module, graph_passes(Target.of("simt")))
    graphs = [b.expr.graph if isinstance(b.expr, Fused) else None for b in made.main.body]
    calls = [b.expr for b in made.main.body] + [b.expr for g in graphs if g for b in g.body]
    names = [c.op.name for c in calls if isinstance(c, Call)]
    assert names.count("transpose") == 1 + reader.count("transpose")
