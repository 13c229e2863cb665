"""Remote devices: compile here, run there.

tilewright rpc server --key-file k                              # on the device

device = tw.rpc.connect("device:9190", key="k")                 # here
model = device.load(tw.compile("net.onnx", device.target))
"""

from tilewright.rpc.client.connect import connect
from tilewright.rpc.client.device import Device
from tilewright.rpc.client.kernel import RemoteKernel
from tilewright.rpc.client.link import Link
from tilewright.rpc.client.model import RemoteModel
from tilewright.rpc.client.pool import Pool
from tilewright.rpc.client.tracker import Tracker
from tilewright.rpc.serial.connect import connect_serial
from tilewright.rpc.serial.device import SerialDevice
from tilewright.rpc.serving.registration import Registration
from tilewright.rpc.serving.server import Server
from tilewright.rpc.serving.tracker import TrackerServer
from tilewright.rpc.wire.errors import (
    DeviceLostError,
    ProtocolError,
    RefusedError,
    UnreachableError,
)
from tilewright.rpc.wire.keys import make_key, read_key, write_key
from tilewright.rpc.wire.limits import Limits

__all__ = [
    "Device",
    "DeviceLostError",
    "Limits",
    "Link",
    "Pool",
    "ProtocolError",
    "RefusedError",
    "Registration",
    "RemoteKernel",
    "RemoteModel",
    "SerialDevice",
    "Server",
    "Tracker",
    "TrackerServer",
    "UnreachableError",
    "connect",
    "connect_serial",
    "make_key",
    "read_key",
    "write_key",
]
