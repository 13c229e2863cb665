"""GPU kernels executed on the CPU, by NumPy, so that they can be tested without a GPU.

All threads of a block, and many blocks, are the elements of arrays and execute every statement in
lockstep under a mask. What a GPU leaves undefined is an error here: accesses outside of buffers,
reads of memory that nobody wrote, races between threads, barriers that not all threads reach.
"""

from tilewright.simt.error import SimtError
from tilewright.simt.run import run

__all__ = ["SimtError", "run"]
