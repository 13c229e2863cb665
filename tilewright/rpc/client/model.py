"""A model on another machine, with the interface of a local one."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.models.artifact import load
from tilewright.models.native import NativeModel
from tilewright.rpc.client.device import Device, artifact_of
from tilewright.rpc.client.distant import DistantModel
from tilewright.rpc.wire.values import Array, Packed, unpacked
from tilewright.runtime import (
    Inputs,
    RunnableModel,
    Spec,
    TensorSpec,
    UnsuitedError,
    bind_outputs,
)
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath
from tilewright.support.timing import Latencies, Timing

if TYPE_CHECKING:
    from tilewright.rpc.wire.channel import Progress
    from tilewright.runtime import BoundModel
    from tilewright.support.profile import Profile


class RemoteModel(DistantModel):
    """A model in a session of a device."""

    def __init__(
        self,
        device: Device,
        model: RunnableModel | AnyPath,
        threads: int | None,
        progress: Progress | None,
    ) -> None:
        super().__init__()
        self._device, self._source, self._threads = device, model, threads
        #: The arguments of `set_threads`, to repeat in a new session.
        self._pinned: tuple[int | None, list[int] | None] | None = None
        self._epoch = self._number = 0
        self._recorder_epoch = 0
        target = self._send(progress)
        is_here = isinstance(model, RunnableModel)
        self._local = model if is_here else load(model, target=target, verify=False)
        if self._local.apart is not None:
            self.apart = self._parted

    # ---- the session ----------------------------------------------------------------------------

    def _send(self, progress: Progress | None = None) -> str:
        fields = {"call": "load", "threads": self._threads}
        with artifact_of(self._source) as path:
            answer = self._device.send_file(fields, path, progress)
        self._number, self._epoch = int(answer["model"]), self._device.epoch
        unload = ("unload", "model", self._number)
        weakref.finalize(self, self._device.unused.append, (self._epoch, *unload))
        return str(answer.get("target", ""))

    def _call(self, name: str, fields: dict[str, Any], packed: Packed) -> Any:
        if self._epoch != self._device.epoch or not self._device.is_open:
            self._send()
            if self._pinned is not None:
                self._pin()
        return self._device.call(name, {"model": self._number, **fields}, packed)

    def _parted(self, model: RunnableModel, inputs: Inputs, error: UnsuitedError) -> RunnableModel:
        del model
        assert self._local.apart is not None
        return self._device.load(self._local.apart(self._local, inputs, error))

    # ---- running --------------------------------------------------------------------------------

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        packed = Packed()
        answer, arrays = self._call("run", {"inputs": packed.named(inputs)}, packed)
        results: list[Any] = [unpacked(tree, arrays) for tree in answer["outputs"]]
        return _written(results, self.outputs, out) if len(out) else results

    def bound_to(self, inputs: Inputs, out: Inputs) -> BoundModel:
        raise UserError(
            "cannot bind the model to arrays",
            reason="it runs on another machine, which does not see them",
            remedy="use run",
        )

    def time(
        self, inputs: Inputs, repeat: int = 20, min_repeat_ms: float = 50.0, warmup: int = 2
    ) -> Timing:
        """Time the native code on the device, without communication."""
        packed = Packed()
        fields = {"inputs": packed.named(inputs), "repeat": repeat, "warmup": warmup}
        answer, arrays = self._call("time", {**fields, "min_repeat_ms": min_repeat_ms}, packed)
        return Timing(_samples(answer, arrays), int(answer["calls"]))

    def benchmark(self, inputs: Inputs, *, seconds: float = 1.0, warmup: int = 3) -> Latencies:
        """The latency of single runs on the device, without communication."""
        if not isinstance(seconds, Real) or not isinstance(warmup, Integral):
            reason = f"got {seconds!r} seconds, after {warmup!r} runs"
            raise UserError("cannot time the model", reason=reason, remedy="give numbers")
        packed = Packed()
        fields = {"inputs": packed.named(inputs), "seconds": float(seconds), "warmup": int(warmup)}
        return Latencies(_samples(*self._call("benchmark", fields, packed)))

    def profile_of(self, inputs: Inputs, runs: int, warmup: int) -> Profile:
        if not isinstance(self._local, NativeModel):
            raise self._not_offered("be profiled")
        profiled, packed = self._local.profiled, Packed()
        fields = {"inputs": packed.named(inputs), "runs": runs, "warmup": warmup, "words": 0}
        if self._recorder_epoch != self._device.epoch or not self._device.is_open:
            # The code is compiled here: the device needs no compiler.
            packed.tree(np.frombuffer(profiled.code, np.uint8))
            fields["words"] = profiled.words
        answer, arrays = self._call("record", fields, packed)
        self._recorder_epoch = self._device.epoch
        return profiled.profile(runs, unpacked(answer["events"], arrays))

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        self._pinned = (count, None if affinity is None else [int(a) for a in affinity])
        self._pin()

    def _pin(self) -> None:
        assert self._pinned is not None
        count, affinity = self._pinned
        self._call("threads", {"count": count, "affinity": affinity}, Packed())

    # ---- inspection ------------------------------------------------------------------------------

    @property
    def device(self) -> Device:
        """The device it runs on."""
        return self._device


def _samples(answer: dict[str, Any], arrays: Sequence[Array]) -> tuple[float, ...]:
    return tuple(unpacked(answer["samples"], arrays).tolist())


def _written(results: list[Any], specs: Sequence[Spec], out: Inputs) -> list[Any]:
    """The results, copied to the caller's arrays if there are any."""
    pairs = zip(specs, results, strict=True)
    came = [TensorSpec(s.name, DType.of(r.dtype), r.shape) for s, r in pairs]
    own = bind_outputs(out, came, {}, ())
    for k, array in enumerate(own):
        if array is not None:
            array[...] = results[k]
            results[k] = array
    return results
