"""Fuses two products and the softmax between them: one kernel, no matrix of scores in memory.

    s = matmul(q, k)                     def group():
    m = add(mul(s, 0.125), mask)             s = matmul(q, k)
    p = softmax(m)               -->         …
    y = matmul(p, v)                         return matmul(p, v)
                                         y = fused(group)

Maps on either side of the softmax belong to it, also where some of them split the heads into other
dimensions (windows of images, which have masks of their own). So do copies that only rearrange an
operand (heads that are split, transposed, repeated): the kernel reads the copy's source. The
operator `attention` takes in such copies too.

GPUs hold the scores of some rows in registers or in shared memory, for products of narrow floats.
Where there are few rows and their scores do not fit there, or sizes are not known, the parts stay
separate kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, TypeVar, cast

from tilewright.graph.fusion.definitions import Facts, FactTable, LoopKind
from tilewright.graph.fusion.sharing import is_shared
from tilewright.graph.ir import Binding, Call, Fused, Graph, Module, Value
from tilewright.graph.ir.types import Dim, known_dim
from tilewright.graph.precision.stored import stored_type
from tilewright.graph.rewriting.context import Pass
from tilewright.graph.rewriting.rewrite import grouped, users_of
from tilewright.graph.sizes.axes import axis_of
from tilewright.target import Target

AnyGraph = TypeVar("AnyGraph", bound=Graph)
#: Fewest rows of a block of threads, and bytes of shared memory per score: as float32, and as the
#: narrow factor of the second product.
_LEAST_ROWS: Final = 16
_SCORE_BYTES: Final = 6
#: Fraction of a block's shared memory that scores may take; operands need the rest.
_SHARE: Final = 0.75
#: Rows of a tile that loops over any number of keys.
_TILE_ROWS: Final = 64


def fuse_attention(target: Target) -> Pass:
    """The pass for a machine."""

    def fuse_attention(module: Module) -> Module:
        """The module with attention as single kernels."""
        if target.gpu is not None and stored_type() is None:
            return module
        facts = FactTable()
        return module.map(lambda f: _fused(f, facts, target))

    return fuse_attention


def _fused(graph: AnyGraph, facts: FactTable, target: Target) -> AnyGraph:
    body = [_with_inner(b, facts, target) for b in graph.body]
    finder = _Finder(graph, body, facts, target)
    groups = {k: found for k in range(len(body)) if (found := finder.group(k))}
    gone = {m for found in groups.values() for m in found}
    kept: list[Binding] = []
    for k, binding in enumerate(body):
        if k in groups:
            kept.append(grouped([body[m] for m in sorted(groups[k])], binding.outputs))
        elif k not in gone:
            kept.append(binding)
    return cast("AnyGraph", graph.with_(kept)) if groups or body != list(graph.body) else graph


def _with_inner(binding: Binding, facts: FactTable, target: Target) -> Binding:
    expr = binding.expr
    if not expr.graphs or isinstance(expr, Fused):
        return binding
    graphs = [_fused(g, facts, target) for g in expr.graphs]
    if all(a is b for a, b in zip(graphs, expr.graphs, strict=True)):
        return binding
    return Binding(binding.outputs, expr.with_graphs(graphs), binding.origin)


class _Finder:
    """Finds groups by their last product."""

    def __init__(
        self, graph: Graph, body: Sequence[Binding], facts: FactTable, target: Target
    ) -> None:
        self._body, self._table, self._target = body, facts, target
        self._maker = {v: k for k, b in enumerate(body) for v in b.outputs}
        self._uses = users_of(graph, body)
        names = {b.expr.op.name for b in body if isinstance(b.expr, Call)}
        self._may_find = not names.isdisjoint(("softmax", "attention"))

    def group(self, last: int) -> set[int]:
        """The indices of the bindings that form the attention ending in a product, if any."""
        if not self._may_find:
            return set()
        call = self._body[last].expr
        if isinstance(call, Call) and call.op.name == "attention":
            return self._with_moves_of(last, call)
        shares = self._weighted(last)
        chain = set[int]() if shares is None else self._chain(shares)
        if not chain or not all(self._stays_inside(k, {*chain, last}) for k in chain):
            return set()
        return self._with_moves({*chain, last})

    def _with_moves_of(self, index: int, call: Call) -> set[int]:
        """The operator `attention` with the copies of its operands."""
        moved, (result, *_) = self._with_moves({index}), self._body[index].outputs
        keys = call.args[1]
        assert keys is not None
        fits = self._fits_gpu(result.shape[:-1], keys.shape[-2], result.shape[-1])
        return moved if len(moved) > 1 and _is_wide(result) and fits else set()

    def _weighted(self, index: int) -> Value | None:
        """The scores that a product sums over the last axis of, if they have several rows."""
        call = self._body[index].expr
        if self._facts(index).kind is not LoopKind.CONTRACTION or not isinstance(call, Call):
            return None
        value = call.args[0]
        if value is None or value.ndim < 2 or not _sums_last(call):
            return None
        columns = self._body[index].outputs[0].shape[-1]
        fits = self._fits_gpu(value.shape[:-1], value.shape[-1], columns)
        return value if _is_wide(value) and fits else None

    def _fits_gpu(self, rows: Sequence[Dim], keys: Dim, columns: Dim) -> bool:
        """Whether a GPU has instructions for such products and can hold all scores of some rows in
        shared memory, or has enough rows to loop over the keys on every multiprocessor."""
        gpu = self._target.gpu
        if gpu is None:
            return True
        *heads, own, length, width = [known_dim(d) or 0 for d in (*rows, keys, columns)]
        if not gpu.has_warp_products or min(own, length, width) <= _LEAST_ROWS // 2:
            return False
        are_many = prod(heads) * own >= gpu.multiprocessors * _TILE_ROWS
        return are_many or _LEAST_ROWS * length * _SCORE_BYTES <= _SHARE * gpu.shared

    def _chain(self, shares: Value) -> set[int]:
        """The calls from the first product to `shares`, if one softmax is among them."""
        found, pending = dict[int, LoopKind](), [shares]
        while pending:
            index = self._maker.get(pending.pop())
            if index is None or index in found or not self._belongs(index, shares):
                continue
            found[index] = self._facts(index).kind
            if found[index] is not LoopKind.CONTRACTION:
                pending += _operands(self._body[index])
        products = [k for k, kind in found.items() if kind is LoopKind.CONTRACTION]
        chain = set(products)
        for k in sorted(found):
            if any(self._maker.get(v) in chain for v in _operands(self._body[k])):
                chain.add(k)
        softmaxes = [k for k in chain if found[k] is LoopKind.REDUCTION]
        made = self._maker.get(shares) in chain
        return chain if made and len(products) == len(softmaxes) == 1 else set()

    def _belongs(self, index: int, shares: Value) -> bool:
        """Whether a result has the shape of the scores, up to a different split of the heads."""
        (binding, kind) = self._body[index], self._facts(index).kind
        same = all(v.shape == shares.shape and v.dtype is shares.dtype for v in binding.outputs)
        if kind is LoopKind.REDUCTION:
            return same and _is_softmax(binding)
        if kind is LoopKind.CONTRACTION:
            return same
        has_rows = all(_has_same_rows(v, shares) for v in binding.outputs)
        return has_rows and (kind is LoopKind.MAP or _regroups_heads(binding))

    def _stays_inside(self, index: int, group: set[int]) -> bool:
        return all(self._uses[v] <= group for v in self._body[index].outputs)

    # ---- copies ---------------------------------------------------------------------------------

    def _with_moves(self, group: set[int]) -> set[int]:
        """The group with the calls that only rearrange its operands."""
        products = [k for k in group if self._facts(k).kind is LoopKind.CONTRACTION]
        pending = [v for k in products for v in _operands(self._body[k])]
        taken = set(group)
        while pending:
            index = self._maker.get(pending.pop())
            if index is None or index in taken or not self._moves(index):
                continue
            if self._stays_inside(index, taken):
                taken.add(index)
                pending += _operands(self._body[index])
        return self._without_views(taken)

    def _moves(self, index: int) -> bool:
        facts, binding = self._facts(index), self._body[index]
        is_move = facts.kind <= LoopKind.INJECTIVE and facts.cost == 0
        return is_move and len(binding.expr.args) == len(binding.outputs) == 1

    def _without_views(self, group: set[int]) -> set[int]:
        """The group without views of values from outside: these cost nothing by themselves."""
        while True:
            views = {k for k in group if self._is_outer_view(k, group)}
            if not views:
                return group
            group = group - views

    def _is_outer_view(self, index: int, group: set[int]) -> bool:
        (source, *_) = _operands(self._body[index])
        return is_shared(self._body[index]) and self._maker.get(source) not in group

    def _facts(self, index: int) -> Facts:
        binding = self._body[index]
        if not isinstance(binding.expr, Call):
            return Facts(LoopKind.OPAQUE)
        return self._table(binding.expr, [v.type for v in binding.outputs])


def _operands(binding: Binding) -> list[Value]:
    return [a for a in dict.fromkeys(binding.expr.args) if a is not None]


def _is_wide(value: Value) -> bool:
    """Whether it has more than one row, of floats that sums are accumulated in."""
    return value.dtype.is_float and value.dtype.bits >= 32 and known_dim(value.shape[-2]) != 1


def _has_same_rows(value: Value, scores: Value) -> bool:
    """Whether it has as many rows of the same length, however the heads are split."""
    if value.shape == scores.shape:
        return True
    rows = value.shape[-2:] == scores.shape[-2:]
    return rows and _known_count(value) == _known_count(scores) != 0


def _known_count(value: Value) -> int:
    return prod(known_dim(d) or 0 for d in value.shape)


def _regroups_heads(binding: Binding) -> bool:
    """Whether a call only splits or merges the dimensions of heads."""
    call = binding.expr
    is_view = isinstance(call, Call) and call.op.name == "reshape"
    return is_view and all(_has_same_rows(v, binding.outputs[0]) for v in _operands(binding))


def _is_softmax(binding: Binding) -> bool:
    call = binding.expr
    if not isinstance(call, Call) or call.op.name != "softmax":
        return False
    rank = binding.outputs[0].ndim
    return axis_of(call.attrs["axis"], rank) == rank - 1


def _sums_last(call: Call) -> bool:
    """Whether a product sums over the last axis of its first operand."""
    if call.op.name == "einsum":
        left, _, result = call.attrs["equation"].replace(" ", "").partition("->")
        return left.partition(",")[0][-1:] not in result
    return call.op.name == "matmul" and not call.attrs["transpose_a"]
