"""Sessions over a serial line, with the monitor that a microcontroller runs.

frames      messages as bytes on the line
lines       serial ports and other streams of bytes, with time-outs
monitor     requests and answers: repeated when they are lost, refusals as errors
placing     object code tied to addresses of the board
memory      which part of the board's memory is whose
device      the board, as remote devices are seen
code        a function in the board's memory, called and timed
program     the function of a model, with its tensors
model       a model there
recording   when its kernels begin and end
function    the function of a kernel, with what it works in
kernel      a kernel there
trials      candidates of a tuner beside their default
connect     a line to a device

`docs/serial_protocol.md` is the protocol; `device_runtime/source/monitor` is the other side.
"""
