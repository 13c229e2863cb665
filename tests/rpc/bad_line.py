"""A line between two network namespaces that delays packets and loses some, for tests.

    python -m tests.rpc.bad_line SPACE:ADDRESS SPACE:ADDRESS DELAY_MS LOSS

Each namespace gets a tunnel device, whose packets are carried here: kernels need not know of such
lines. It says `up` once the line stands, and carries packets until its standard input ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI, _CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
_DEVICE = "bad0"


def tunnel(space: str, address: str) -> int:
    """A device in a namespace that has this address; packets are read and written here."""
    with open(f"/run/netns/{space}", "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"the namespace {space} cannot be entered")
    made = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(made, _TUNSETIFF, struct.pack("16sH", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    for words in (["addr", "add", f"{address}/24", "dev", _DEVICE], ["link", "set", _DEVICE, "up"]):
        subprocess.run(["ip", *words], check=True)
    return made


def carry(ends: dict[int, int], seconds: float, loss: float) -> None:
    """Take packets from each end to the other."""
    rng, under_way, count = random.Random(0), list[tuple[float, int, int, bytes]](), 0
    while True:
        left = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        ready, _, _ = select.select([sys.stdin.fileno(), *ends], [], [], left)
        if sys.stdin.fileno() in ready:
            return
        for end in ready:
            packet, count = os.read(end, 65536), count + 1
            if rng.random() >= loss:
                arrives = time.monotonic() + seconds * rng.uniform(0.75, 1.25)
                heapq.heappush(under_way, (arrives, count, ends[end], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(under_way)
            os.write(end, packet)


def main() -> None:
    one, other = (tunnel(*word.split(":")) for word in sys.argv[1:3])
    print("up", flush=True)
    carry({one: other, other: one}, float(sys.argv[3]) / 1e3, float(sys.argv[4]))


if __name__ == "__main__":
    main()
