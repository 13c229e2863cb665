"""Products of matrices."""

from __future__ import annotations

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
    """beta * self + alpha * product; operands multiplied by 0 are ignored, even NaN."""
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
