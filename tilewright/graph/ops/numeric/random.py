"""Random numbers, by a counter-based generator: element n of a result is a function of key and n.

A key is u32[2], the lower half first. `random_key` gives another one in every run; all other
operators are pure functions of their keys, so that they fuse, fold and run in parallel like any
formula. The generator is SplitMix64: 64 bits for each element, from three rounds of mixing. Its
formula is short, which matters, as formulas are inlined into all their readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dim, Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal
from tilewright.ir import Buffer, DType, Expr, Function, Store, const, seq
from tilewright.support.errors import UserError
from tilewright.tensor import te

_STEP: Final = 0x9E3779B97F4A7C15
_FACTORS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_U32, _U64, _INT32 = DType.of("uint32"), DType.of("uint64"), DType.of("int32")
_FLOAT32, _FLOAT64 = DType.of("float32"), DType.of("float64")

# ---- keys ---------------------------------------------------------------------------------------


@op(pure=False)
def random_key() -> Type:
    """Another key at every run, from the C library's generator."""
    return TensorType(_U32, [2])


@random_key.reference
def random_key_reference() -> Array:
    return np.random.default_rng().integers(0, 2**32, 2, dtype=np.uint32)


@random_key.kernel
def random_key_kernel() -> Function:
    def body(_: Sequence[Buffer], outs: Sequence[Buffer]) -> Any:
        words = [te.cast(te.call_extern("rand"), _U32) for _ in range(2)]
        return seq(*(Store(outs[0], (const(n),), word) for n, word in enumerate(words)))

    return te.function([], [te.extern((2,), [], body, dtype=_U32, name="key")], "random_key")


def _require_key(key: Value) -> None:
    if key.dtype is not _U32 or key.ndim != 1 or known_dim(key.shape[0]) not in (None, 2):
        raise UserError(f"{key} is no key", remedy="use b.random_key(), or a constant of u32[2]")
    require_equal(key.shape[0], 2, "the elements of a key and two")


# ---- the generator ------------------------------------------------------------------------------


def _mixed(z: Any) -> Any:
    """SplitMix64's mixing of 64 bits, for NumPy's numbers and for expressions."""
    z = (z ^ (z >> 30)) * _FACTORS[0]
    z = (z ^ (z >> 27)) * _FACTORS[1]
    return z ^ (z >> 31)


def splitmix(counter: Array, key: Array) -> tuple[Array, Array]:
    """Two words, upper and lower, for each counter, by NumPy."""
    start = np.uint64(key[0]) | np.uint64(key[1]) << np.uint64(32)
    with np.errstate(over="ignore"):
        bits = _mixed((counter + np.uint64(1)) * np.uint64(_STEP) + start)
    return (bits >> np.uint64(32)).astype(np.uint32), bits.astype(np.uint32)


def _words(key: te.Tensor, counter: Expr) -> tuple[Expr, Expr]:
    lower, upper = (te.cast(key[n], _U64) for n in range(2))
    start = lower | (upper << 32)
    bits = _mixed((te.cast(counter, _U64) + 1) * te.const(_STEP, _U64) + start)
    return te.cast(bits >> 32, _U32), te.cast(bits, _U32)


def _flat(i: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    position: Expr = const(0)
    for index, extent in zip(i, shape, strict=True):
        position = position * extent + index
    return position


def _fraction(words: tuple[Expr, Expr], work: DType) -> Expr:
    """A number in [0, 1)."""
    if work is not _FLOAT64:
        return te.cast(words[0] >> 8, _FLOAT32) * 2.0**-24
    upper, lower = (te.cast(w >> s, _FLOAT64) for w, s in zip(words, (5, 6), strict=True))
    return (upper * 2.0**26 + lower) * 2.0**-53


def _fraction_reference(words: tuple[Array, Array], dtype: Any) -> Array:
    if dtype != np.float64:
        return (words[0] >> np.uint32(8)).astype(np.float64) * 2.0**-24
    upper, lower = words[0] >> np.uint32(5), words[1] >> np.uint32(6)
    return (upper.astype(np.float64) * 2.0**26 + lower) * 2.0**-53


def _counters(shape: Sequence[int]) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)


# ---- uniform and normal -------------------------------------------------------------------------


@op
def random_uniform(
    key: Value, *, shape: Dims, low: float = 0.0, high: float = 1.0, dtype: DType = _FLOAT32
) -> Type:
    """Numbers from low up to, but without, high."""
    _require_key(key)
    return TensorType(dtype, shape)


@random_uniform.reference
def random_uniform_reference(
    key: Array, *, shape: Ints, low: float, high: float, dtype: DType
) -> Array:
    words = splitmix(_counters(shape), key)
    return (_fraction_reference(words, dtype.numpy) * (high - low) + low).astype(dtype.numpy)


@random_uniform.compute
def random_uniform_compute(
    key: te.Tensor, *, shape: Dims, low: float, high: float, dtype: DType, out: TensorType
) -> te.Tensor:
    work = accumulator(dtype)

    def element(*i: Expr) -> Expr:
        share = _fraction(_words(key, _flat(i, out.shape)), work)
        return te.cast(share * (high - low) + low, dtype)

    return te.compute(out.shape, element, name="random_uniform")


@op
def random_normal(
    key: Value, *, shape: Dims, mean: float = 0.0, scale: float = 1.0, dtype: DType = _FLOAT32
) -> Type:
    """Normally distributed numbers."""
    _require_key(key)
    return TensorType(dtype, shape)


@random_normal.reference
def random_normal_reference(
    key: Array, *, shape: Ints, mean: float, scale: float, dtype: DType
) -> Array:
    first, second = (w.astype(np.float64) for w in splitmix(_counters(shape), key))
    distance = np.sqrt(-2 * np.log((first + 1) * 2.0**-32))
    normal = distance * np.cos(2 * np.pi * second * 2.0**-32)
    return (normal * scale + mean).astype(dtype.numpy)


@random_normal.compute
def random_normal_compute(
    key: te.Tensor, *, shape: Dims, mean: float, scale: float, dtype: DType, out: TensorType
) -> te.Tensor:
    work = accumulator(dtype)

    def element(*i: Expr) -> Expr:
        first, second = (te.cast(w, work) for w in _words(key, _flat(i, out.shape)))
        distance = te.sqrt(te.log((first + 1.0) * 2.0**-32) * -2.0)
        normal = distance * te.cos(second * (2 * np.pi * 2.0**-32))
        return te.cast(normal * scale + mean, dtype)

    return te.compute(out.shape, element, name="random_normal")


# ---- choices ------------------------------------------------------------------------------------


@op
def bernoulli(key: Value, p: Value, *, dtype: DType | None = None) -> Type:
    """1 with the probability that the element of `p` has, else 0; in the type of `p` or `dtype`."""
    _require_key(key)
    require_kind("float", p)
    return TensorType(dtype or p.dtype, p.shape)


@bernoulli.reference
def bernoulli_reference(key: Array, p: Array, *, dtype: DType | None) -> Array:
    share = _fraction_reference(splitmix(_counters(p.shape), key), p.dtype)
    return (share < p.astype(np.float64)).astype(p.dtype if dtype is None else dtype.numpy)


@bernoulli.compute
def bernoulli_compute(key: te.Tensor, p: te.Tensor, *, dtype: DType | None) -> te.Tensor:
    work = accumulator(p.dtype)

    def element(*i: Expr) -> Expr:
        share = _fraction(_words(key, _flat(i, p.shape)), work)
        return te.cast(share < te.cast(p[i], work), dtype or p.dtype)

    return te.compute(p.shape, element, name="bernoulli")


@op
def multinomial(key: Value, logits: Value, *, samples: Dim, dtype: DType = _INT32) -> Type:
    """For each row of `logits`, so many classes, drawn by their unnormalised log-probabilities."""
    _require_key(key)
    require_kind("float", logits)
    if logits.ndim != 2:
        raise UserError(f"multinomial takes rows of logits, not {logits}")
    return TensorType(dtype, [logits.shape[0], samples])


@multinomial.reference
def multinomial_reference(key: Array, logits: Array, *, samples: int, dtype: DType) -> Array:
    rows, classes = logits.shape
    words = splitmix(_counters((rows, samples, classes)), key)
    share = ((words[0] >> np.uint32(8)).astype(np.float64) + 0.5) * 2.0**-24
    scores = logits[:, None, :].astype(np.float64) - np.log(-np.log(share))
    return scores.argmax(axis=-1).astype(dtype.numpy)


@multinomial.compute
def multinomial_compute(
    key: te.Tensor, logits: te.Tensor, *, samples: Dim, dtype: DType, out: TensorType
) -> te.Tensor:
    classes, work = logits.shape[1], accumulator(logits.dtype)
    c = te.reduce_axis(classes, name="c")

    def drawn(row: Expr, sample: Expr) -> Any:
        counter = (row * out.shape[1] + sample) * classes + c
        word = te.cast(_words(key, counter)[0] >> 8, work)
        share = (word + 0.5) * 2.0**-24
        # The argmax of logits plus Gumbel noise has the distribution of the classes.
        return te.argmax(te.cast(logits[row, c], work) - te.log(-te.log(share)), axis=c)

    at = te.compute(out.shape, drawn, name="drawn")
    return te.compute(out.shape, lambda *i: te.cast(at[i], dtype), name="multinomial")


# ---- dropout ------------------------------------------------------------------------------------


@op
def dropout_training(key: Value, x: Value, ratio: Value) -> tuple[Type, Type]:
    """x / (1 - ratio) where an element is kept and 0 where it is dropped; and which are kept."""
    _require_key(key)
    require_kind("float", x, ratio)
    if ratio.tensor.size != 1:
        raise UserError(f"dropout_training takes one ratio, not {ratio}")
    return x.type, TensorType("bool", x.shape)


@dropout_training.reference
def dropout_training_reference(key: Array, x: Array, ratio: Array) -> tuple[Array, Array]:
    share = _fraction_reference(splitmix(_counters(x.shape), key), np.float32)
    part = ratio.reshape(()).astype(np.float64)
    kept = share >= part
    with np.errstate(all="ignore"):
        return np.where(kept, x / (1 - part), 0).astype(x.dtype), kept


@dropout_training.compute
def dropout_training_compute(
    key: te.Tensor, x: te.Tensor, ratio: te.Tensor
) -> tuple[te.Tensor, te.Tensor]:
    work = accumulator(x.dtype)
    part = te.cast(ratio[(0,) * ratio.ndim], work)

    def is_kept(*i: Expr) -> Expr:
        share = _fraction(_words(key, _flat(i, x.shape)), _FLOAT32)
        return te.cast(share, work) >= part

    kept = te.compute(x.shape, is_kept, name="kept")

    def element(*i: Expr) -> Expr:
        scaled = te.cast(x[i], work) / (1 - part)
        return te.cast(te.select(kept[i], scaled, te.const(0, work)), x.dtype)

    return te.compute(x.shape, element, name="dropout"), kept
