"""Rules for GPUs, one file each: every block of a function ends up in a launch.

whole functions   rows (softmax, norms), rest (what no other rule took)
products          products
reductions        rows, parts (few results of long sums)
the rest          transposes, elementwise, results (a thread for each)
used by many      grid
"""
