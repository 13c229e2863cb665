"""A microcontroller at the other end of a serial line, as if it were a device on the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.rpc.serial.memory import BoardMemory
from tilewright.rpc.serial.monitor import Facts, Monitor
from tilewright.rpc.wire.channel import Progress
from tilewright.runtime import KernelCode, RunnableModel
from tilewright.support.errors import UserError
from tilewright.support.timing import Timing
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.rpc.serial.kernel import BoardKernel
    from tilewright.rpc.serial.model import BoardModel

#: What a board's processor is called in ELF files.
_MACHINES: Final = {40: "arm", 243: "riscv32"}


class SerialDevice:
    """A board that runs the monitor; a context manager, at whose end the line is closed.

    It loads, runs and times models and kernels, as `tw.rpc.Device` does. It has neither trials nor
    profiles, and takes no artifacts, which hold no models for boards. A line that is cut raises
    `DeviceLostError`: connect again.
    """

    def __init__(self, monitor: Monitor, seconds: float) -> None:
        self.monitor, self.seconds = monitor, seconds
        self.memory = BoardMemory(self.facts.window, self.facts.window_bytes)
        #: Addresses of what nobody refers to any more.
        self.unused: list[int] = []
        self._is_closed = False

    @property
    def facts(self) -> Facts:
        """What the monitor says of its board."""
        return self.monitor.facts

    @property
    def target(self) -> str:
        """The text of the target to compile for: the processor of the board."""
        return str(Target.of(f"llvm -mcpu={self.facts.processor}"))

    @property
    def name(self) -> str:
        """What the board is called."""
        return self.facts.board or _MACHINES.get(self.facts.machine, "board")

    @property
    def address(self) -> str:
        return self.monitor.name

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    def load(self, model: RunnableModel, *, progress: Progress | None = None) -> BoardModel:
        """Link a compiled model to the board's memory, and send it there.

        `progress` is told the bytes that are sent, and the bytes of all, after each piece.
        """
        from tilewright.rpc.serial.model import BoardModel

        return BoardModel(self, model, progress)

    def load_kernel(self, code: KernelCode) -> BoardKernel:
        """Link a kernel, as `Module.as_code` gives it, to the board's memory, and send it there."""
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

    def ping(self) -> None:
        """A call that does nothing: the board is there."""
        self.require_open()
        self.monitor.ping()

    def require_open(self) -> None:
        """Refuse calls after the end, and free what nobody refers to."""
        if self._is_closed:
            raise UserError("the line to the board is closed", remedy="connect again")
        while self.unused:
            self.memory.give_back(self.unused.pop())

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
