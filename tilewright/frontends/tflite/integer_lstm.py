"""Long short-term memory in integers: bytes in and out, gates and cells of 16 bits.

All is computed as in the reference kernels, bit for bit: sums of bytes are scaled to gates with
three integer bits, one product after the other and each clamped to 16 bits; gates are computed by
tables (`gates`); cells have a scale that is a power of two.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.frontends.tflite.fixed_point import (
    Multiplier,
    by_table,
    multiplier_of,
    scaled,
)
from tilewright.frontends.tflite.gates import logistic_table, tanh_table
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.tensors import Quantization
from tilewright.graph import Array, Value
from tilewright.ir import DType
from tilewright.support.errors import UserError

_INT8, _INT16, _INT32 = (DType.of(name) for name in ("int8", "int16", "int32"))
#: The step of numbers before gates' activations, and of those after them.
_GATE_STEP: Final = 2.0**-12
_OPENED_STEP: Final = 2.0**-15
#: The gates' operands at these distances from the first weights.
_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_PEEPHOLES: Final = {_INPUT: 9, _FORGET: 10, _OUTPUT: 11}
_BIAS: Final = 12
_PROJECTION, _PROJECTION_BIAS = 16, 17
_OUTPUT_STATE, _CELL_STATE, _NORMS = 18, 19, 20
_HIDDEN: Final = 4


class _Product(NamedTuple):
    """Bytes by weights inputs×outputs, the bias plus the effect of zero points, and factors."""

    weights: Array
    bias: Array
    multiplier: Multiplier

    def __call__(self, n: Node, x: Value, **held: Any) -> Value:
        b = n.builder
        total = b.add(b.matmul_integer(x, n.constant(self.weights)), n.constant(self.bias))
        return scaled(n, total, self.multiplier, **held)


def is_integer_lstm(n: Node) -> bool:
    """Whether inputs are bytes and cells have 16 bits."""
    return n.tensor(0).type == "int8" and n.tensor(_CELL_STATE).type == "int16"


def integer_lstm(n: Node, x: Value) -> tuple[Value, Value, Value]:
    """Outputs T×B×outputs, the last output and the last cell, of inputs T×B×I."""
    if any(n.has(_NORMS + k) for k in range(4)):
        raise UserError(
            f"{n.op} of int8 with layer normalisation is not supported",
            remedy="convert the model with float activations",
        )
    b, step = n.builder, _Step(n)
    rows = step.products[0](n, x, low=-32768, high=32767, dtype=_INT16)

    def body(i: Value, output: Value, cell: Value) -> Any:
        after = step(b.gather(rows, i, axis=0), output, cell)
        return list(after), [after[0]]

    count = b.index(b.shape_of(x), 0)
    output, cell, every = b.loop(count, [n[_OUTPUT_STATE], n[_CELL_STATE]], body)
    return every, output, cell


class _Step:
    """One step in time."""

    def __init__(self, n: Node) -> None:
        self._n = n
        self._is_coupled = not n.has(1)
        self._gates = [k for k in range(4) if k != _INPUT or not self._is_coupled]
        self._hidden = _intermediate(n, _HIDDEN)
        if n.has(_PROJECTION):
            # The kernels store projections with the negated zero point: they saturate there.
            self._hidden = self._hidden._replace(zeros=-self._hidden.zeros)
        self._bits = _integer_bits(n)
        self.products = (self._joined(0, 1, _BIAS), self._joined(_OUTPUT_STATE, 5, None))
        self._projection = self._projected() if n.has(_PROJECTION) else None

    def _joined(self, given: int, first: int, bias: int | None) -> _Product:
        """The products of all gates as one: `given` by the weights from operand `first` on."""
        n, how = self._n, self._n.quantization(given)
        parts = [
            _product(n, how, first + k, _GATE_STEP, None if bias is None else bias + k)
            for k in self._gates
        ]
        numbers, shifts = (
            np.concatenate([np.full(p.bias.shape, p.multiplier[k]) for p in parts])
            for k in range(2)
        )
        weights = np.concatenate([p.weights for p in parts], axis=1)
        multiplier = Multiplier(numbers.astype(np.int32), shifts.astype(np.int32))
        return _Product(weights, np.concatenate([p.bias for p in parts]), multiplier)

    def _projected(self) -> _Product:
        n = self._n
        step = float(n.quantization(_OUTPUT_STATE).scale)
        return _product(n, self._hidden, _PROJECTION, step, _PROJECTION_BIAS)

    def __call__(self, row: Value, output: Value, cell: Value) -> tuple[Value, Value]:
        """The output and the cell after a row of products B×(gates·H)."""
        n, b = self._n, self._n.builder
        total = b.add(self.products[1](n, output), b.cast(row, dtype=_INT32))
        total = _held(n, total)
        hidden = cell.shape[1]
        parts = b.split(total, sizes=[hidden] * len(self._gates), axis=1)
        sums = dict(zip(self._gates, parts, strict=True))
        forget = self._opened(sums, _FORGET, cell)
        if self._is_coupled:
            entry = b.sub(n.constant(np.int16(32767)), forget)
        else:
            entry = self._opened(sums, _INPUT, cell)
        fresh = by_table(n, sums[_CELL], tanh_table(3))
        kept = _product_of_16(n, forget, cell, 15)
        added = _product_of_16(n, entry, fresh, 15 + self._bits)
        after = _held(n, b.add(kept, added), self._clip("cell_clip", _CELL_STATE, 32767))
        return self._output(self._opened(sums, _OUTPUT, after), after), after

    def _opened(self, sums: dict[int, Value], gate: int, cell: Value) -> Value:
        n, total, at = self._n, sums[gate], _PEEPHOLES[gate]
        if n.has(at):
            weights, step = n.quantization(at), float(n.quantization(_CELL_STATE).scale)
            factor = float(weights.scale) * step / _GATE_STEP
            moved = scaled(n, _wide_product(n, cell, n[at]), factor)
            total = _held(n, n.builder.add(moved, n.builder.cast(total, dtype=_INT32)))
        return by_table(n, total, logistic_table())

    def _output(self, opened: Value, cell: Value) -> Value:
        n = self._n
        product = _wide_product(n, opened, by_table(n, cell, tanh_table(self._bits)))
        factor = _OPENED_STEP / float(self._hidden.scale) * _OPENED_STEP
        as_bytes: dict[str, Any] = {"low": -128, "high": 127, "dtype": _INT8}
        made = scaled(n, product, factor, zero=self._hidden.zero, **as_bytes)
        if self._projection is None:
            return made
        made = self._projection(n, made, zero=n.quantization(_OUTPUT_STATE).zero, **as_bytes)
        limit = self._clip("proj_clip", _OUTPUT_STATE, 127)
        return made if limit == 127 else _held(n, made, limit, _INT8)

    def _clip(self, option: str, state: int, most: int) -> int:
        limit = self._n.option(option)
        return (
            min(int(limit / float(self._n.quantization(state).scale)), most) if limit > 0 else most
        )


# ---- numbers ------------------------------------------------------------------------------------


def _product(n: Node, how: Quantization, weights: int, step: float, bias: int | None) -> _Product:
    array = n.array(weights)
    factor = float(n.quantization(weights).scale) * float(how.scale) / step
    moved = -how.zero * array.sum(axis=1, dtype=np.int64)
    if bias is not None and n.has(bias):
        moved = moved + n.array(bias)
    made = np.ascontiguousarray(array.T)
    return _Product(made, moved.astype(np.int32), multiplier_of(factor))


def _intermediate(n: Node, index: int) -> Quantization:
    """How an intermediate value of the operator is quantized."""
    numbers = n.operator.intermediates
    tensors = n.scope.graph.tensors
    found = tensors[numbers[index]].quantization if index < len(numbers) else None
    if found is None:
        raise UserError(f"{n.op} does not say how the value {index} inside of it is quantized")
    return found


def _integer_bits(n: Node) -> int:
    """The integer bits of cells, whose step must be a power of two."""
    part, exponent = np.frexp(float(n.quantization(_CELL_STATE).scale))
    bits = 15 + int(exponent) - 1
    if part != 0.5 or not 0 <= bits <= 6:
        raise UserError("the scale of the cells is no power of two from 2**-15 to 2**-9")
    return bits


def _wide_product(n: Node, x: Value, y: Value) -> Value:
    b = n.builder
    return b.mul(b.cast(x, dtype=_INT32), b.cast(y, dtype=_INT32))


def _product_of_16(n: Node, x: Value, y: Value, by: int) -> Value:
    """x · y / 2**by, rounded with halves away from zero."""
    b, product = n.builder, _wide_product(n, x, y)
    half = b.sub(
        n.constant(np.int32(1 << (by - 1))),
        b.cast(b.less(product, n.constant(np.int32(0))), dtype=_INT32),
    )
    return b.right_shift(b.add(product, half), n.constant(np.int32(by)))


def _held(n: Node, x: Value, most: int = 32767, dtype: DType = _INT16) -> Value:
    """x clamped to a type, or to a smaller bound on both sides."""
    least = int(dtype.min_value) if most == dtype.max_value else -most
    held = n.builder.clip(x, n.scalar(least, x), n.scalar(most, x))
    return n.builder.cast(held, dtype=dtype)
