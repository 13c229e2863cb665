"""Executes GPU kernels on the CPU, by NumPy, so that they can be tested without a GPU.

All threads of a block, and many blocks, are elements of arrays and execute every statement in
lockstep under a mask. Undefined behaviour of a GPU is an error here: out-of-bounds accesses, reads
of uninitialized memory, races between threads, barriers that not all threads reach.
"""

from tilewright.simt.error import SimtError
from tilewright.simt.run import run

__all__ = ["SimtError", "run"]
