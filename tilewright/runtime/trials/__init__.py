"""Trials: times of a task's candidate kernels against its default, where there is no compiler.

task        a task as data: its signature, sizes and target
alone       a kernel of a model, called by itself
arguments   made-up arguments for it
answers     whether a candidate's results equal the default's
running     a running task: compares results, then times
serve       the process in which candidates run, and may crash
process     the parent's side of it: begin a task, measure candidates
measured    the result of a measurement, and the margin to win
within      a candidate in the place of a kernel of a running model
bundle      tasks with many candidates as one file
bundled     measures a bundle, and writes records
"""
