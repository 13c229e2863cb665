"""What the way to a remote device costs: an empty call, and uploads, beside plain TLS sockets.

The server is a process of its own on this machine. Beside it runs another one that does nothing but
echo over TLS, by the same library and with the same settings: what there is at most.

    python benchmarks/rpc.py
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from interleaved import interleaved

import tilewright as tw
from tilewright.graph import Builder
from tilewright.rpc.wire.tls import make_certificate, server_context

SIZE = 64 << 20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder) / "k", make_certificate(Path(folder))
        tw.rpc.write_key(key)
        plain, device = _plain(certificate), _device(key, Path(folder))
        try:
            _calls(plain, device)
            _uploads(plain, device)
        finally:
            device.close()


def _calls(plain: ssl.SSLSocket, device: tw.rpc.Device) -> None:
    model = device.load(_model(4), threads=1)
    tiny = np.zeros(4, np.int8)
    runs = {
        "TLS socket, 64 bytes there and back": lambda: _echo(plain, bytes(64)),
        "empty call": device.ping,
        "run of a model with one element": lambda: model.run([tiny]),
    }
    for name, times in interleaved(runs, rounds=40).items():
        print(f"{name:40} median {1e6 * times.median:7.1f} µs, least {1e6 * times.least:7.1f} µs")


def _uploads(plain: ssl.SSLSocket, device: tw.rpc.Device) -> None:
    model = device.load(_model(SIZE), threads=1)
    data = np.random.default_rng(0).integers(0, 100, SIZE, np.int8)
    runs = {
        "TLS socket": lambda: _echo(plain, data.data),
        "inputs of a model": lambda: model.run([data]),
    }
    times = interleaved(runs, rounds=10)
    for name, found in times.items():
        rate = SIZE / found.median / 1e6
        print(f"{name:40} {rate:7.0f} MB/s, {SIZE / found.least / 1e6:7.0f} MB/s at best")
    share = times["TLS socket"].median / times["inputs of a model"].median
    print(f"uploads move {share:.0%} of what plain TLS sockets move")


def _model(size: int) -> Any:
    """A model that returns the first of its elements."""
    b = Builder()
    b.output(b.slice(b.input("x", "int8", (size,)), starts=[0], ends=[1], axes=[0]))
    return tw.compile(b.build(), threads=1)


# ---- the device ---------------------------------------------------------------------------------


def _device(key: Path, folder: Path) -> tw.rpc.Device:
    words = [sys.executable, "-m", "tilewright", "rpc", "server", "--key-file", str(key)]
    process = subprocess.Popen([*words, "--folder", str(folder / "f")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1].decode()
    device = tw.rpc.connect(address, key)
    close = device.close

    def closed() -> None:
        close()
        process.terminate()
        process.wait()

    device.close = closed
    return device


# ---- plain sockets ------------------------------------------------------------------------------


def _plain(certificate: Path) -> ssl.SSLSocket:
    listener = socket.create_server(("127.0.0.1", 0))
    context = multiprocessing.get_context("fork")
    context.Process(target=_serve, args=(listener, certificate), daemon=True).start()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    sock = socket.create_connection(listener.getsockname())
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client.wrap_socket(sock)


def _serve(listener: socket.socket, certificate: Path) -> None:
    """Read a length and as many bytes, and send 64 back."""
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wrapped = server_context(certificate).wrap_socket(sock, server_side=True)
    memory = memoryview(bytearray(SIZE))
    head = memoryview(bytearray(8))
    while _filled(wrapped, head):
        if not _filled(wrapped, memory[: int.from_bytes(head, "big")]):
            break
        wrapped.sendall(bytes(64))
    os._exit(0)


def _filled(sock: ssl.SSLSocket, view: memoryview) -> bool:
    done = 0
    while done < len(view):
        count = sock.recv_into(view[done:])
        if not count:
            return False
        done += count
    return True


def _echo(sock: ssl.SSLSocket, data: Any) -> None:
    length = len(data).to_bytes(8, "big")
    if len(data) < 1024:
        sock.sendall(length + bytes(data))
    else:
        sock.sendall(length)
        sock.sendall(data)
    _filled(sock, memoryview(bytearray(64)))


if __name__ == "__main__":
    main()
