"""A detector in the manner of YOLO: convolutions with SiLU, parts that are split and put together
again, pooling at several sizes, and features of three scales that are joined going up and down."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Conv(nn.Sequential):
    """A convolution, batch normalisation, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(),
        )


class Bottleneck(nn.Module):
    """Two convolutions, added to what goes in or not."""

    def __init__(self, channels: int, adds: bool) -> None:
        super().__init__()
        self.both = nn.Sequential(Conv(channels, channels, 3), Conv(channels, channels, 3))
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        y = self.both(x)
        return x + y if self.adds else y


class Split(nn.Module):
    """Half of the channels go through bottlenecks; all that was seen on the way is joined."""

    def __init__(self, inputs: int, outputs: int, count: int, adds: bool) -> None:
        super().__init__()
        self.before = Conv(inputs, outputs)
        self.inner = nn.ModuleList(Bottleneck(outputs // 2, adds) for _ in range(count))
        self.after = Conv(outputs // 2 * (count + 2), outputs)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.before(x).chunk(2, 1))
        for inner in self.inner:
            parts.append(inner(parts[-1]))
        return self.after(torch.cat(parts, 1))


class Pooled(nn.Module):
    """The greatest of windows of three sizes, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before, self.after = Conv(channels, channels // 2), Conv(channels * 2, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.before(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.after(torch.cat(parts, 1))


class Detector(nn.Module):
    """Gives boxes and classes at three scales, side by side."""

    def __init__(self, outputs: int = 144) -> None:
        super().__init__()
        self.low = nn.Sequential(
            *(Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), Split(32, 32, 1, True)),
            *(Conv(32, 64, 3, 2), Split(64, 64, 2, True)),
        )
        self.middle = nn.Sequential(Conv(64, 128, 3, 2), Split(128, 128, 2, True))
        self.high = nn.Sequential(Conv(128, 256, 3, 2), Split(256, 256, 1, True), Pooled(256))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.to_middle, self.to_low = Split(384, 128, 1, False), Split(192, 64, 1, False)
        self.down_middle, self.down_high = Conv(64, 64, 3, 2), Conv(128, 128, 3, 2)
        self.from_middle, self.from_high = Split(192, 128, 1, False), Split(384, 256, 1, False)
        self.heads = nn.ModuleList(
            nn.Sequential(Conv(c, 64, 3), Conv(64, 64, 3), nn.Conv2d(64, outputs, 1))
            for c in (64, 128, 256)
        )

    def forward(self, x: Tensor) -> Tensor:
        low = self.low(x)
        middle = self.middle(low)
        high = self.high(middle)
        middle = self.to_middle(torch.cat([self.up(high), middle], 1))
        low = self.to_low(torch.cat([self.up(middle), low], 1))
        middle = self.from_middle(torch.cat([self.down_middle(low), middle], 1))
        high = self.from_high(torch.cat([self.down_high(middle), high], 1))
        pairs = zip(self.heads, (low, middle, high), strict=True)
        return torch.cat([head(y).flatten(2) for head, y in pairs], 2)
