"""Random nodes by our references, by native code and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.conformance.runners import evaluated
from tests.frontends.onnx.models import info, make, node
from tests.frontends.onnx.peer import compare, run_peer
from tests.frontends.onnx.random_nodes import FAMILIES, Node, random_node

#: By the bytes of a type: how far results may be apart, as a share and at least.
_SLACK = {8: (1e-6, 1e-7), 4: (2e-4, 1e-5), 2: (2e-2, 2e-2)}


def model_of(nodes: Sequence[Node]) -> tuple[onnx.ModelProto, list[Any]]:
    """The nodes side by side, and what the inputs are given."""
    made, inputs, given, weights, outputs = [], [], [], {}, []
    for k, n in enumerate(nodes):
        names = ["" if a is None else f"x{k}_{j}" for j, a in enumerate(n.operands)]
        for j, (name, array) in enumerate(zip(names, n.operands, strict=True)):
            if j in n.constants and name:
                weights[name] = array
            elif name:
                inputs.append(info(name, array.dtype, array.shape))
                given.append(array)
        results = [f"y{k}_{j}" for j in range(n.outputs)]
        made.append(node(n.op, names, results, **n.attrs))
        outputs += results
    return make(made, inputs, outputs, weights, opset=19), given


def differing(got: Sequence[Any], want: Sequence[Any]) -> str:
    """What is wrong with results; nothing if they are the same, near enough."""
    for g, w in zip(map(np.asarray, got), map(np.asarray, want), strict=True):
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"{g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if w.dtype.kind in "biu":
            same = g == w
        else:
            rtol, atol = _SLACK[w.dtype.itemsize]
            same = np.isclose(g.astype("f8"), w.astype("f8"), rtol, atol, equal_nan=True)
        if not np.all(same):
            return f"{np.sum(~same)} of {w.size} differ"
    return ""


def peer_results(model: onnx.ModelProto, given: Sequence[Any]) -> list[Any] | None:
    """What the peer gives, if it takes the node."""
    try:
        return run_peer(model, given)
    except Exception:  # Types that it lacks are told in many ways.
        return None


def told(n: Node) -> str:
    shapes = ["none" if a is None else f"{a.dtype}{list(a.shape)}" for a in n.operands]
    return f"{n.op}({', '.join(shapes)}) {n.attrs}"


#: Operators that ONNX Runtime computes in another way than ONNX says where elements are not finite
#: or there are none, and whose halves it sums in halves.
_APART = frozenset("MatMul Gemm Softmax LogSoftmax Hardmax CumSum Mod Min Max Clip".split())


def is_beside_the_peer(n: Node) -> bool:
    if n.op not in _APART and not n.op.startswith("Reduce"):
        return True
    return all(
        a.size and a.dtype != np.float16 and np.isfinite(a.astype("f8")).all()
        for a in n.operands
        if a is not None
    )


@pytest.mark.parametrize("op", sorted(FAMILIES))
def test_references_beside_the_peer(op: str) -> None:
    for seed in range(10):
        n = random_node(op, seed)
        model, given = model_of([n])
        with np.errstate(all="ignore"):
            got = evaluated(model, given)
        want = peer_results(model, given) if is_beside_the_peer(n) else None
        wrong = differing(got, want) if want is not None else ""
        assert not wrong, f"seed {seed}, {told(n)}: {wrong}"


#: Nodes that are compiled together: one of each operator, other seeds than above.
_OPERATORS = sorted(FAMILIES)
_BATCHES = [_OPERATORS[k::4] for k in range(4)]


@pytest.mark.parametrize("ops", _BATCHES, ids=lambda ops: ops[0])
def test_native_code_beside_references(ops: Sequence[str]) -> None:
    nodes = [random_node(op, 100) for op in ops]
    model, given = model_of(nodes)
    with np.errstate(all="ignore"):
        want = evaluated(model, given)
    got = tw.compile(model, threads=1).run(given)
    at = 0
    for n in nodes:
        part = slice(at, at + n.outputs)
        at += n.outputs
        wrong = differing(got[part], want[part])
        assert not wrong, f"{told(n)}: {wrong}"


# ---- recurrent networks -------------------------------------------------------------------------


def recurrent_operands(gates: int, directions: int) -> list[Any]:
    rng = np.random.default_rng(gates)
    shapes = [(3, 2, 4), (directions, gates * 2, 4), (directions, gates * 2, 2)]
    return [rng.standard_normal(s).astype("f4") for s in shapes]


def test_activations_take_their_parameters_in_order() -> None:
    """Those that have none leave the numbers to the next."""
    names = ["Sigmoid", "LeakyRelu", "Tanh", "Elu", "Affine", "ScaledTanh"]
    alphas, betas = [0.3, 0.5, 0.7, 0.9], [0.2, 0.4]
    compare("LSTM", recurrent_operands(4, 2), domain="", count=3, hidden_size=2,
            direction="bidirectional", activations=names, activation_alpha=alphas,
            activation_beta=betas)  # fmt: skip
    compare("GRU", recurrent_operands(3, 1), domain="", count=2, hidden_size=2,
            activations=["Softsign", "HardSigmoid"], activation_alpha=alphas[:1],
            activation_beta=betas[:1])  # fmt: skip


def test_the_cell_is_not_clipped() -> None:
    compare("LSTM", recurrent_operands(4, 1), domain="", count=3, hidden_size=2, clip=0.4)
    compare("GRU", recurrent_operands(3, 1), domain="", count=2, hidden_size=2, clip=0.4)
