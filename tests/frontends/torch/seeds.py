"""Sound programs that damaged archives are made of, written by a process of their own.

torch starts threads where it exports a program, which a process must not have that forks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]


def linear() -> tuple[Any, Any]:
    """A product, a transposed buffer and a symbolic size."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)
            self.register_buffer("columns", torch.arange(6.0).reshape(2, 3).t())

        def forward(self, x: Any) -> Any:
            return (self.linear(x) @ self.columns).reshape(x.shape[0] * 2)

    return Net(), torch.randn(3, 4)


def network() -> tuple[Any, Any]:
    """A convolution with its normalisation, pooling, attention and a branch."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(2, 4, 3, stride=2, padding=1)
            self.norm = torch.nn.BatchNorm2d(4)
            self.pool = torch.nn.MaxPool2d(2)

        def forward(self, x: Any) -> Any:
            y = self.pool(torch.relu(self.norm(self.conv(x)))).flatten(2)
            y = torch.nn.functional.scaled_dot_product_attention(y, y, y)
            y = torch.cat([y[:, ::2], y[:, 1:3]], dim=1).softmax(-1)
            return torch.cond(y.sum() > 3, lambda v: v * 2, lambda v: v.exp(), (y,))

    return Net().eval(), torch.randn(2, 2, 8, 8)


def _written(name: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "tests.frontends.torch.seeds", name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


def archive(name: str) -> bytes:
    """The program as `torch.export.save` writes it, with a symbolic batch."""
    import io

    import torch

    net, x = _PROGRAMS[name]()
    dynamic = ({0: torch.export.Dim.AUTO},)
    made = io.BytesIO()
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=dynamic), made)
    return made.getvalue()


_PROGRAMS: Final[dict[str, Callable[[], tuple[Any, Any]]]] = {"linear": linear, "network": network}
SEEDS: Final = {name: partial(_written, name) for name in _PROGRAMS}

if __name__ == "__main__":
    sys.stdout.buffer.write(archive(sys.argv[1]))
