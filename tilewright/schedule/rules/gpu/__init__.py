"""Rules for GPUs, one file each: every block of a function ends up in a launch.

beforehand        windows (convolutions as products), inline (padding)
products          products, product_plan
reductions        parts (few results of long sums), rows (softmax, norms), results
the rest          transposes, elementwise, results (a thread for each), rest (what is left)
used by many      grid
"""
