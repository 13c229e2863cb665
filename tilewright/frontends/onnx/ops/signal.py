"""Fourier transforms and mel filters."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.common.padding import dim_number
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Array, Dim, Value
from tilewright.support.errors import UserError


@converts("DFT", since=17, until=20)
def dft_along_attribute(n: Node) -> Value:
    return _dft(n, n.integer("axis", 1))


@converts("DFT", since=20)
def dft(n: Node) -> Value:
    return _dft(n, n.number(2) if n.get(2) is not None else -2)


def _dft(n: Node, axis: int) -> Value:
    x, b = n[0], n.builder
    if x.ndim < 2:
        raise UserError(f"{x} has no axis beside that of the real and imaginary parts")
    at = axis % x.ndim
    if at == x.ndim - 1:
        raise UserError(f"axis {axis} is that of the real and imaginary parts")
    order = [k for k in range(x.ndim - 1) if k != at]
    front = x if at == x.ndim - 2 else b.transpose(x, axes=[*order, at, x.ndim - 1])
    length = n.dim(1) if n.get(1) is not None else None
    result = _transformed(n, front, length, n.flag("inverse"), n.flag("onesided"))
    if at == x.ndim - 2:
        return result
    back = list(range(x.ndim - 2))
    return b.transpose(result, axes=[*back[:at], x.ndim - 2, *back[at:], x.ndim - 1])


def _transformed(n: Node, x: Value, length: Dim | None, inverse: bool, onesided: bool) -> Value:
    """The transform along the last but one dimension, cropped or padded to `length` first."""
    b = n.builder
    if inverse and onesided:
        return _real_inverse(n, x, length)
    size = x.shape[-2] if length is None else length
    full = _complex(n, _resized(n, x, size))
    result = b.dft(full, inverse=inverse)
    return b.slice(result, starts=[0], ends=[size // 2 + 1], axes=[-2]) if onesided else result


def _real_inverse(n: Node, x: Value, length: Dim | None) -> Value:
    """A real signal from the first half of its spectrum."""
    b = n.builder
    size = (x.shape[-2] - 1) * 2 if length is None else length
    half = _resized(n, x, size // 2 + 1)
    # The other half mirrors it: the same real parts, negated imaginary ones.
    rest = b.slice(half, starts=[1], ends=[size - size // 2], axes=[-2])
    mirrored = b.mul(b.flip(rest, axes=[-2]), n.constant(np.array([1, -1]), x.dtype))
    result = b.dft(b.concat(half, mirrored, axis=-2), inverse=True)
    return b.slice(result, starts=[0], ends=[1], axes=[-1])


def _resized(n: Node, x: Value, size: Dim) -> Value:
    """A signal cropped or padded with zeros to this many elements."""
    have, want = dim_number(x.shape[-2]), dim_number(size)
    if have is want or (isinstance(have, int) and have == want):
        return x
    after: list[Dim] = [0] * x.ndim
    after[-2] = want - have
    return n.builder.pad(x, before=[0] * x.ndim, after=after)


def _complex(n: Node, x: Value) -> Value:
    """Real numbers get imaginary parts of zero."""
    parts = dim_number(x.shape[-1])
    if parts not in (1, 2):
        raise UserError(f"{x} holds neither real nor complex numbers")
    after = [0] * (x.ndim - 1) + [1]
    return x if parts == 2 else n.builder.pad(x, before=[0] * x.ndim, after=after)


@converts("STFT")
def stft(n: Node) -> Value:
    signal, b = n[0], n.builder
    if signal.ndim == 2:
        signal = b.unsqueeze(signal, axes=[2])
    if signal.ndim != 3:
        raise UserError(f"{signal} must be batches of signals, of real or complex numbers")
    step, window = n.number(1), n.get(2)
    if step < 1:
        raise UserError(f"frames are {step} samples apart", remedy="use numbers from 1 up")
    length = _frame_length(n, signal, window)
    count = (signal.shape[1] - length) // step + 1
    frames = b.gather(signal, _places(n, step, length, count), axis=1)
    if window is not None:
        frames = b.mul(frames, b.reshape(window, shape=[length, 1]))
    is_real = signal.tensor.with_shape(signal.shape[-1:]).size == 1
    return _transformed(n, frames, None, False, n.flag("onesided", True) and is_real)


def _frame_length(n: Node, signal: Value, window: Value | None) -> Dim:
    if n.get(3) is not None:
        return n.dim(3)
    return dim_number(window.shape[0] if window is not None else signal.shape[1])


def _places(n: Node, step: int, length: Dim, count: Dim) -> Value:
    """The indices of the samples in each frame."""
    b = n.builder
    zero, one, by = (n.constant(v, "int64") for v in (0, 1, step))
    starts = b.unsqueeze(b.ramp(zero, by, size=count), axes=[1])
    return b.add(starts, b.unsqueeze(b.ramp(zero, one, size=length), axes=[0]))


@converts("MelWeightMatrix")
def mel_weight_matrix(n: Node) -> Value:
    bands, size, rate = (n.number(k) for k in range(3))
    low, high = (float(n.array(k).ravel()[0]) for k in (3, 4))
    if not 0 < bands <= 1 << 16 or not 0 < size <= 1 << 24 or rate <= 0:
        raise UserError(f"{bands} mel bands of a transform of {size} at {rate} Hz")
    return n.constant(_mel_matrix(bands, size, rate, low, high), n.dtype("output_datatype", 1))


def _mel_matrix(bands: int, size: int, rate: int, low: float, high: float) -> Array:
    """Triangles whose corners are equidistant on the mel scale, rounded to bins."""
    mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    corners = mels[0] + np.arange(bands + 2) * ((mels[1] - mels[0]) / (bands + 2))
    hertz = 700 * (10 ** (corners / 2595) - 1)
    bins = ((size + 1) * hertz // rate).astype(np.int64)
    places = np.arange(size // 2 + 1)[:, None]
    left, peak, right = bins[:-2], bins[1:-1], bins[2:]
    with np.errstate(all="ignore"):
        slope: Array = (places - left) / (peak - left)
        rising = np.where(peak == left, (places == peak).astype(np.float64), slope)
        falling = np.where(right == peak, 0.0, (right - places) / (right - peak))
    is_rising = (places >= left) & (places <= peak)
    is_falling = (places >= peak) & (places < right)
    return np.where(is_falling, falling, np.where(is_rising, rising, 0.0))


@converts("HannWindow", "HammingWindow", "BlackmanWindow")
def window(n: Node) -> Value:
    return n.builder.window(
        size=n.dim(0),
        kind=n.op.removesuffix("Window").lower(),
        periodic=n.flag("periodic", True),
        dtype=n.dtype("output_datatype", 1),
    )
