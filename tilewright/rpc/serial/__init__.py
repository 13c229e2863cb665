"""Sessions over a serial line with the monitor on a microcontroller.

frames      messages as bytes on the line
lines       serial ports and other byte streams, with time-outs
monitor     requests and answers: repeated when lost, refusals as errors
placing     object code relocated to the board's memory
memory      allocation of the board's memory
device      the board, with the interface of remote devices
code        a function in the board's memory, called and timed
program     the function of a model, with its tensors
model       a model on the board
recording   the start and end of its kernels
function    the function of a kernel, with its workspace
kernel      a kernel on the board
trials      candidates of a tuner against their default
connect     a line to a device

`docs/serial_protocol.md` is the protocol; `device_runtime/source/monitor` is the board's side.
"""
