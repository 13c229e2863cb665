"""A microcontroller on a serial line, with the interface of a remote device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.rpc.serial.memory import BoardMemory
from tilewright.rpc.serial.monitor import Facts, Monitor
from tilewright.rpc.wire.channel import Progress
from tilewright.rpc.wire.errors import DeviceLostError
from tilewright.runtime import (
    KernelCode,
    Measured,
    PackedKernel,
    RunnableModel,
    TrialServer,
    TrialTask,
)
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath
from tilewright.support.timing import Timing
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.rpc.serial.kernel import BoardKernel
    from tilewright.rpc.serial.model import BoardModel
    from tilewright.rpc.serial.trials import BoardTask

#: The machine numbers in ELF files.
_MACHINES: Final = {40: "arm", 243: "riscv32"}


class SerialDevice:
    """A board that runs the monitor; a context manager that closes the line at its end.

    It loads, runs, times and profiles models, and tuners can use it, like `tw.rpc.Device`. A board
    that was reset, or that another host has taken over, raises `DeviceLostError`: `restart` opens a
    new session, and models are sent there again.
    """

    def __init__(self, monitor: Monitor, seconds: float) -> None:
        self.monitor, self.seconds = monitor, seconds
        self._lock = threading.RLock()
        self._is_closed = self._is_cut = False
        #: The number of the session: what was loaded in an earlier one is gone.
        self.epoch = 0
        self._forget()

    def _forget(self) -> None:
        """Reset the state, with nothing loaded on the board."""
        self.epoch, self._is_over = self.epoch + 1, False
        self.memory = BoardMemory(self.facts.window, self.facts.window_bytes)
        #: Addresses of allocations without references.
        self.unused: list[int] = []
        self._trials = TrialServer(begin=self._task)

    @property
    def facts(self) -> Facts:
        """The monitor's description of its board."""
        return self.monitor.facts

    @property
    def target(self) -> str:
        """The text of the target to compile for: the board's processor."""
        return str(Target.of(f"llvm -mcpu={self.facts.processor}"))

    @property
    def name(self) -> str:
        """The name of the board."""
        return self.facts.board or _MACHINES.get(self.facts.machine, "board")

    @property
    def address(self) -> str:
        return self.monitor.name

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    def load(
        self,
        model: RunnableModel | AnyPath,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> BoardModel:
        """Link a compiled model, or an artifact's build for this target, to the board's memory, and
        send it there.

        `progress` is called with the bytes sent and the total bytes, after each piece.
        """
        from tilewright.models.artifact import load
        from tilewright.rpc.serial.model import BoardModel

        if threads not in (None, 1):
            raise UserError(f"{self.name} cannot run {threads} threads", reason="a board has one")
        is_here = isinstance(model, RunnableModel)
        return BoardModel(self, model if is_here else load(model, target=self.target), progress)

    def load_kernel(self, code: KernelCode) -> BoardKernel:
        """Link a kernel (from `Module.as_code`) to the board's memory, and send it there."""
        from tilewright.rpc.serial.kernel import BoardKernel

        return BoardKernel(self, code)

    def measure(
        self,
        kernels: Sequence[BoardKernel],
        args: Sequence[Any],
        *,
        rounds: int = 10,
        min_repeat_ms: float = 0.0,
        warmup: int = 1,
    ) -> list[Timing]:
        """Times of kernels on the same arguments by the board's counter, interleaved."""
        from tilewright.rpc.serial.kernel import measured

        return measured(kernels, args, rounds, min_repeat_ms, warmup)

    def trial(self, asked: dict[str, Any], code: bytes, within: float) -> Measured:
        """The answer to a message of `runtime.trials`."""
        del within  # The limit of a call follows from the default's time on the board.
        with self._lock:
            self.require_open()
            return Measured.of_data(self._trials.answered(asked, code))

    def _task(self, task: TrialTask, default: PackedKernel) -> BoardTask:
        from tilewright.rpc.serial.trials import BoardTask

        return BoardTask(self, task, default)

    def ping(self) -> None:
        """A call without effect, to check that the board answers."""
        self.require_open()
        self.monitor.ping()

    def require_open(self) -> None:
        """Refuse calls after `close`, open a session if one is due, free unused allocations."""
        with self._lock:
            if self._is_closed:
                raise UserError("the line to the board is closed", remedy="connect again")
            if self._is_over:
                self.monitor.begin_session()
                self._forget()
            while self.unused:
                self.memory.give_back(self.unused.pop())

    def restart(self) -> None:
        """End the session: the next call opens a new one, without any state of this one."""
        self._is_over = True

    def cut(self) -> None:
        """Abort the trial that another thread waits for, after the call in progress."""
        self._is_cut = True
        with self._lock:
            self._is_cut = False

    def require_uncut(self) -> None:
        """Refuse to continue an aborted trial."""
        if self._is_cut:
            raise DeviceLostError(f"the trial on {self.name} was given up")

    def close(self) -> None:
        """Close the line."""
        if not self._is_closed:
            self._is_closed = True
            self.monitor.close()

    def __enter__(self) -> SerialDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SerialDevice {self.name} on {self.address}: {self.target}>"
