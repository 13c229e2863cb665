"""Faults of our own, as files that a report can carry and that anyone can run again.

saving.py       the border around the compiler: a fault leaves it with a file
made.py         from a fault to the smallest thing that still fails
reduced.py      the smallest part of a graph that still fails
again.py        runs what a reproducer holds
failure.py      how something failed, and whether two failures are the same
file.py         the file
"""

# pyright: reportUnusedImport=false
from tilewright.reproducers.again import run_again
from tilewright.reproducers.file import Reproducer, read_reproducer
from tilewright.reproducers.saving import saving_reproducers
