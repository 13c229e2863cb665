"""Products of matrices, and attention."""

from __future__ import annotations

import math
from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


def product(n: Node, a: Value, b: Value) -> Value:
    """A product in the type of the result; of truth values, whether any pair is true."""
    if not a.dtype.is_bool:
        return n.builder.matmul(a, b)
    made = n.builder.matmul(n.cast(a, "int32"), n.cast(b, "int32"))
    return n.cast(made, "bool")


@converts("mm", "bmm")
def mm(n: Node) -> Value:
    return product(n, n.tensor("self"), n.tensor("mat2"))


@converts("matmul")
def matmul(n: Node) -> Value:
    return product(n, n.tensor("self"), n.tensor("other"))


@converts("mv")
def mv(n: Node) -> Value:
    return product(n, n.tensor("self"), n.tensor("vec"))


@converts("dot", "vdot")
def dot(n: Node) -> Value:
    return product(n, n.tensor("self"), n.tensor("other" if n.op.startswith("v") else "tensor"))


@converts("addmm", "baddbmm", "addbmm", "addmv", "addr")
def added_product(n: Node) -> Value:
    """beta * self + alpha * product; what is multiplied by 0 does not count, be it NaN."""
    b, name = n.builder, n.op.partition(".")[0]
    left, right = _FACTORS[name]
    x, y = n.tensor(left), n.tensor(right)
    if name == "addr":
        x, y = b.unsqueeze(x, axes=[1]), b.unsqueeze(y, axes=[0])
    made = product(n, x, y)
    if name == "addbmm":
        made = b.sum(made, axes=[0])
    alpha, beta, added = n.get("alpha", 1), n.get("beta", 1), n.tensor("self")
    if alpha != 1:
        made = b.mul(made, n.like(alpha, made))
    if beta == 0:
        return made
    if beta != 1:
        added = b.mul(added, n.like(beta, added))
    if made.dtype.is_bool:
        return b.logical_or(made, added)
    return b.add(made, added)


_FACTORS = {
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "addbmm": ("batch1", "batch2"),
    "addmv": ("mat", "vec"),
    "addr": ("vec1", "vec2"),
}


@converts("linear")
def linear(n: Node) -> Value:
    x, weight, bias = n.tensor("input"), n.tensor("weight"), n.maybe("bias")
    if weight.ndim == 1:
        made = n.builder.matmul(x, weight)
        return made if bias is None else n.builder.add(made, bias)
    return n.builder.dense(x, weight, bias)


@converts("_trilinear")
def trilinear(n: Node) -> Value:
    b = n.builder
    factors: list[Value] = []
    for k in (1, 2, 3):
        axes = [int(a) for a in n[f"expand{k}"]]
        x = n.tensor(f"i{k}")
        factors.append(b.unsqueeze(x, axes=axes) if axes else x)
    made = b.mul(b.mul(factors[0], factors[1]), factors[2])
    return b.sum(made, axes=[int(a) for a in n["sumdim"]])


# ---- attention ----------------------------------------------------------------------------------


@converts("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu")
@converts("_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps")
def attention(n: Node) -> Any:
    q, k, v = (n.tensor(name) for name in ("query", "key", "value"))
    mask = n.maybe("attn_mask")
    b = n.builder
    from tilewright.support.errors import UserError

    if n.get("dropout_p", 0.0):
        raise UserError("attention with dropout", reason="it is random")
    rank = q.ndim
    scale = n.get("scale") or 1 / math.sqrt(int(q.tensor.shape[-1].value))  # type: ignore[attr-defined]
    batch = q.shape[:-2]
    if rank == 3:
        q, k, v = (b.unsqueeze(x, axes=[1]) for x in (q, k, v))
        if mask is not None and mask.ndim == 3:
            mask = b.unsqueeze(mask, axes=[1])
    elif rank != 4:
        raise UserError(f"attention of {rank} dimensions", remedy="use 3 or 4")
    if mask is not None and not mask.dtype.is_bool:
        mask = n.cast(mask, q.dtype)
    made = b.attention(q, k, v, mask, scale=float(scale), causal=bool(n.get("is_causal", False)))
    made = b.reshape(made, shape=[*batch, *made.shape[2:]]) if rank == 3 else made
    if len(n.results) == 1:
        return made
    # The logarithms of the sums, for which only derivatives ask.
    return [made, *(n.full(0, n.shape_of(m), "float32") for m in n.results[1:])]
