"""The calls that a session offers its client: load models, run, time and record them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.models.artifact import load
from tilewright.models.native import NativeModel
from tilewright.models.recording import Recorder
from tilewright.rpc.serving.kernels import Kernels
from tilewright.rpc.serving.trials import RemoteTrials
from tilewright.rpc.wire.channel import Channel
from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.limits import Limits
from tilewright.rpc.wire.requests import Request
from tilewright.rpc.wire.values import Packed, received, unpacked_inputs
from tilewright.runtime import CompiledModel, Keys, RunnableModel
from tilewright.support.errors import UserError

#: The fields of an answer; its arrays are in the `Packed`.
Answer = dict[str, Any]
_MOST_MODELS: Final = 64


@dataclass
class _Held:
    """A model loaded by a client."""

    model: RunnableModel
    file: Path
    recorder: Recorder | None = None


class Calls:
    """The state of one session, and the calls that change it."""

    def __init__(self, folder: Path, limits: Limits, trusted: Keys | None) -> None:
        self._folder, self._limits, self._trusted = folder, limits, trusted
        self._models: dict[int, _Held] = {}
        self._count = 0
        kernels = Kernels()
        self._table: dict[str, Callable[[Request, Packed], Answer]] = {
            "ping": lambda request, out: {},
            "unload": self._unload,
            "run": self._run,
            "time": self._time,
            "benchmark": self._benchmark,
            "record": self._signed_only(self._record),
            "threads": self._threads,
            "load_kernel": self._signed_only(kernels.load),
            "unload_kernel": kernels.unload,
            "call_kernel": kernels.call,
            "measure": kernels.measure,
            "trial": self._signed_only(RemoteTrials().answer),
        }

    def answer(
        self,
        channel: Channel,
        header: dict[str, Any],
        body_bytes: int,
        working: Callable[[], None],
    ) -> tuple[Answer, Packed]:
        """The answer to a request whose body has not been read: its fields, and its arrays.

        `working` is called after the body has been read, before the work begins.
        """
        name, packed = header.get("call"), Packed()
        if name == "load":
            return self._load(channel, header, body_bytes, working), packed
        if not isinstance(name, str) or name not in self._table:
            raise ProtocolError("a message is damaged", reason="it asks for an unknown call")
        if body_bytes > self._limits.message_bytes:
            raise UserError(
                "the arrays are too large for this device",
                reason=f"they take {body_bytes} bytes of {self._limits.message_bytes} allowed ones",
                remedy="send fewer at a time, or start the server with a higher --message",
            )
        arrays = received(channel, header.get("arrays", []), body_bytes)
        working()
        return self._table[name](Request(header, arrays), packed), packed

    def _signed_only(
        self, call: Callable[[Request, Packed], Answer]
    ) -> Callable[[Request, Packed], Answer]:
        """A call that brings unsigned code, refused if only signed code is trusted."""
        if self._trusted is None:
            return call

        def refuse(request: Request, out: Packed) -> Answer:
            del request, out
            raise UserError(
                "this device neither profiles models nor takes single kernels",
                reason="that takes code that nobody has signed, and the server asks for signatures",
                remedy="do it where the server was started without --trusted",
            )

        return refuse

    # ---- models ---------------------------------------------------------------------------------

    def _load(
        self,
        channel: Channel,
        header: dict[str, Any],
        body_bytes: int,
        working: Callable[[], None],
    ) -> Answer:
        self._require_room(body_bytes)
        threads = Request(header, ()).optional("threads")
        self._count += 1
        file = self._folder / f"model-{self._count}.twm"
        try:
            with open(file, "xb") as made:
                for chunk in channel.body_chunks():
                    made.write(chunk)
            working()
            model = load(file, threads=threads, trusted=self._trusted)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        self._models[self._count] = _Held(model, file)
        return {"model": self._count, "target": model.as_build().target.text}

    def _require_room(self, count: int) -> None:
        used = sum(h.file.stat().st_size for h in self._models.values())
        if len(self._models) >= _MOST_MODELS or used + count > self._limits.folder_bytes:
            raise UserError(
                "there is no room for the model on this device",
                reason=f"{len(self._models)} models take {used} bytes, this one {count}, and"
                f" {self._limits.folder_bytes} bytes or {_MOST_MODELS} models are allowed",
                remedy="unload others first, or start the server with a larger --room",
            )

    def _held(self, request: Request) -> _Held:
        number = request.natural("model")
        if number not in self._models:
            raise ProtocolError("a message is out of order", reason=f"there is no model {number}")
        return self._models[number]

    def _unload(self, request: Request, out: Packed) -> Answer:
        del out
        held = self._held(request)
        held.file.unlink(missing_ok=True)
        del self._models[request.natural("model")]
        return {}

    # ---- running --------------------------------------------------------------------------------

    def _run(self, request: Request, out: Packed) -> Answer:
        results = self._held(request).model.run(_inputs(request))
        return {"outputs": [out.tree(r) for r in results]}

    def _time(self, request: Request, out: Packed) -> Answer:
        model = self._held(request).model
        if not isinstance(model, CompiledModel):
            raise UserError(f"this {type(model).__name__} cannot be timed", remedy="use benchmark")
        least = request.number("min_repeat_ms")
        repeat, warmup = request.natural("repeat"), request.natural("warmup")
        timing = model.time(_inputs(request), max(1, repeat), least, warmup)
        return {"samples": out.tree(np.array(timing.samples)), "calls": timing.calls}

    def _benchmark(self, request: Request, out: Packed) -> Answer:
        model, seconds = self._held(request).model, request.number("seconds")
        warmup = request.natural("warmup")
        found = model.benchmark(_inputs(request), seconds=seconds, warmup=warmup)
        return {"samples": out.tree(np.array(found.samples))}

    def _record(self, request: Request, out: Packed) -> Answer:
        """The events of a recording program, whose code is the last array of the first request."""
        held = self._held(request)
        model = held.model
        if not isinstance(model, NativeModel):
            raise UserError(f"this {type(model).__name__} cannot be profiled")
        if (words := request.natural("words")) > 0:
            held.recorder = Recorder(model, request.arrays[-1].tobytes(), min(words, 1024))
        if held.recorder is None:
            raise ProtocolError("a message is out of order", reason="there is no recorder")
        runs, warmup = request.natural("runs"), request.natural("warmup")
        events = held.recorder.record(_inputs(request), runs, warmup)
        return {"events": out.tree(events)}

    def _threads(self, request: Request, out: Packed) -> Answer:
        del out
        affinity = request.fields.get("affinity")
        cores = None if affinity is None else request.naturals("affinity")
        self._held(request).model.set_threads(request.optional("count"), cores)
        return {}


def _inputs(request: Request) -> Any:
    return unpacked_inputs(request.fields.get("inputs"), request.arrays)
