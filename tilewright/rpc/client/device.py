"""A device that somebody else's process runs models on, as if it were here."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.rpc.client.link import Link
from tilewright.rpc.wire.channel import Channel, Progress
from tilewright.rpc.wire.errors import DeviceLostError, ProtocolError, error_from
from tilewright.rpc.wire.fates import Fate
from tilewright.rpc.wire.frames import Kind
from tilewright.rpc.wire.values import Array, Packed, received
from tilewright.runtime import KernelCode, Measured, RunnableModel
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath, text_path
from tilewright.support.timing import Timing

if TYPE_CHECKING:
    from tilewright.rpc.client.kernel import RemoteKernel
    from tilewright.rpc.client.model import RemoteModel
    from tilewright.rpc.client.trials import TrialsByCalls

#: Opens a session: its connection, what the server says of itself, and where that is.
Opener = Callable[[], tuple[Channel, dict[str, Any], Link]]


class Device:
    """A session on another machine; a context manager, at whose end it is given back.

    A session that is lost (its process crashed, the line is cut) raises `DeviceLostError` once; the
    next call begins a new one, and models are sent there again. Calls of several threads come one
    after the other.
    """

    def __init__(self, opener: Opener, given_back: Callable[[], None] = lambda: None) -> None:
        self._opener, self._given_back = opener, given_back
        self._lock = threading.RLock()
        self._channel: Channel | None = None
        self._number, self._is_closed = 0, False
        #: Trials that are made here, by calls; the seconds that each of these may take.
        self._trials: TrialsByCalls | None = None
        self._within: float | None = None
        #: Counts sessions: what was loaded in an earlier one is gone.
        self.epoch = 0
        #: What nobody refers to any more: its session, and the call that frees it, by number.
        self.unused: list[tuple[int, str, str, int]] = []
        self._open()

    @property
    def target(self) -> str:
        """The text of the target to compile for: the machine of the server."""
        return str(self._facts.get("target", ""))

    @property
    def name(self) -> str:
        """What the server calls itself."""
        return str(self._facts.get("name", ""))

    @property
    def address(self) -> str:
        return self._link.address

    @property
    def is_open(self) -> bool:
        """Whether there is a session; if not, the next call begins one."""
        return self._channel is not None

    def load(
        self,
        model: RunnableModel | AnyPath,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> RemoteModel:
        """Send a compiled model, or an artifact, and open it there.

        `progress` is told the bytes that are sent, and the bytes of all, after each piece.
        """
        from tilewright.rpc.client.model import RemoteModel

        return RemoteModel(self, model, threads, progress)

    def load_kernel(self, code: KernelCode) -> RemoteKernel:
        """Send a kernel, as `Module.as_code` gives it, and load it there."""
        from tilewright.rpc.client.kernel import RemoteKernel

        return RemoteKernel(self, code)

    def measure(
        self,
        kernels: Sequence[RemoteKernel],
        args: Sequence[Any],
        *,
        rounds: int = 10,
        min_repeat_ms: float = 10.0,
        warmup: int = 1,
    ) -> list[Timing]:
        """Times of kernels on the same arguments, called in turn: noise falls on all alike."""
        from tilewright.rpc.client.kernel import measured

        return measured(kernels, args, rounds, min_repeat_ms, warmup)

    def trial(self, asked: dict[str, Any], code: bytes, within: float) -> Measured:
        """A message of `runtime.trials` that the session answers, in so many seconds at most; where
        it makes no trials, they are made by calls of kernels, each of which may take that long."""
        self._open()
        if self._facts.get("trials") is False:
            return self._trial_by_calls(asked, code, within)
        packed = Packed()
        packed.tree(np.frombuffer(code, np.uint8))
        answer, _ = self.call("trial", {"trial": asked, "within": within}, packed)
        return Measured.of_data(answer.get("measured"))

    def _trial_by_calls(self, asked: dict[str, Any], code: bytes, within: float) -> Measured:
        from tilewright.rpc.client.trials import TrialsByCalls

        if self._trials is None:
            self._trials = TrialsByCalls(self)
        self._within = within
        try:
            return self._trials.answer(asked, code)
        finally:
            self._within = None

    def ping(self) -> None:
        """A call that does nothing: the device is there."""
        self.call("ping", {})

    # ---- calls ----------------------------------------------------------------------------------

    def call(
        self, name: str, fields: dict[str, Any], packed: Packed | None = None
    ) -> tuple[dict[str, Any], list[Array]]:
        """One request with arrays; the fields of its answer, and the arrays in it."""
        packed = packed or Packed()
        header = {"call": name, **fields}
        if self._within is not None:
            header["within"] = self._within
        if packed.arrays:
            header["arrays"] = packed.specs()
        return self._asked(header, packed.parts(), None)

    def send_file(
        self, fields: dict[str, Any], path: str, progress: Progress | None
    ) -> dict[str, Any]:
        """A request whose body is a file."""
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise UserError(f"cannot send {path}", reason="it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                view = memoryview(mapped)
                try:
                    return self._asked(fields, [view], progress)[0]
                finally:
                    view.release()

    def _asked(
        self, header: dict[str, Any], parts: list[memoryview], progress: Progress | None
    ) -> tuple[dict[str, Any], list[Array]]:
        with self._lock:
            channel = self._open()
            if parts:
                self._require_room(header, sum(p.nbytes for p in parts))
            self._forget(channel)
            return self._exchange(channel, header, parts, progress)

    def _exchange(
        self,
        channel: Channel,
        header: dict[str, Any],
        parts: list[memoryview],
        progress: Progress | None,
    ) -> tuple[dict[str, Any], list[Array]]:
        self._number = self._number % 0xFFFF_FFFF + 1
        try:
            channel.send(Kind.REQUEST, self._number, header, parts, progress)
            prefix, answer = channel.answer(self._number)
            arrays = received(channel, answer.get("arrays", []), prefix.body_bytes)
        except (OSError, ValueError, ProtocolError) as error:
            raise self._lost(str(header["call"]), error) from None
        except UserError:
            # Nothing was sent.
            raise
        except BaseException:
            # The answer may still come, and would be taken for that of the next request.
            self._drop()
            raise
        if prefix.kind is Kind.ERROR:
            raise error_from(answer)
        return answer, arrays

    def _require_room(self, header: dict[str, Any], count: int) -> None:
        """Refuse what the server would refuse, before it is sent."""
        limits = self._facts.get("limits")
        name = "folder_bytes" if header["call"] == "load" else "message_bytes"
        most = limits.get(name) if isinstance(limits, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(most, int) and count > most:
            raise UserError(
                f"the {header['call']} is too large for this device",
                reason=f"it takes {count} bytes, and {most} are allowed",
                remedy="start the server with a larger --message or --room",
            )

    def _forget(self, channel: Channel) -> None:
        """Free models that nobody refers to."""
        while self.unused:
            epoch, call, what, number = self.unused.pop()
            if epoch == self.epoch:
                self._exchange(channel, {"call": call, what: number}, [], None)

    # ---- sessions -------------------------------------------------------------------------------

    def _open(self) -> Channel:
        if self._is_closed:
            raise UserError("the device has been given back", remedy="connect, or request it again")
        if self._channel is None:
            self._channel, self._facts, self._link = self._opener()
            self.epoch += 1
        return self._channel

    def _lost(self, doing: str, error: Exception) -> DeviceLostError:
        self._drop()
        session = self._facts.get("session")
        fate = self._link.fate(str(session)) if session else Fate()
        silent = "it gives no sign of life" if isinstance(error, TimeoutError) else str(error)
        lost = DeviceLostError(
            f"the session on {self.name} ended in the call {doing!r}",
            reason=fate.reason or silent,
            remedy="the next call begins a new session, and sends its model again",
        )
        lost.kind = fate.kind
        return lost

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def restart(self) -> None:
        """End the session: the next call begins a new one, with nothing of what was here."""
        with self._lock:
            self._drop()

    def cut(self) -> None:
        """End the session while another thread waits for an answer, which does not come then."""
        channel = self._channel
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Give the device back."""
        with self._lock:
            self._drop()
            if not self._is_closed:
                self._is_closed = True
                self._given_back()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.name} at {self.address}: {self.target}>"


@contextlib.contextmanager
def artifact_of(model: RunnableModel | AnyPath) -> Any:
    """The path of an artifact with the model, which need not be one yet."""
    if not isinstance(model, RunnableModel):
        yield text_path(model)
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "model.twm"
        model.save(path)
        yield str(path)


def direct(link: Link) -> Opener:
    """Opens sessions of a server."""

    def opened() -> tuple[Channel, dict[str, Any], Link]:
        return *link.open(), link

    return opened
