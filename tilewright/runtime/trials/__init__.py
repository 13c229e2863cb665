"""Trials: kernels of one task, interleaved with its default, where there is no compiler.

task        a task as data: what its kernels take, with which sizes, and for what machine
alone       a kernel of a model, called by itself
arguments   arrays for it
answers     whether a candidate computes what the default does
running     a task at work: results are compared, then times
serve       the process in which candidates run, and may crash
process     the other side of it: begin a task, measure candidates
measured    what comes of a candidate, and what is enough to win
within      a candidate in the place of a kernel of a model that runs
bundle      tasks with many candidates as one file, and their measurements as records
"""
