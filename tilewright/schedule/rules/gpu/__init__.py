"""Rules for GPUs, one file each: every block of a function ends up in a launch.

beforehand        windows (convolutions as products), inline (padding)
attention/        both products and the softmax in one launch
products          tensor_products, products, product_plan, steps (of scans)
reductions        parts (few results of long sums), rows (softmax, norms), results
the rest          transposes, elementwise, results (a thread for each), rest (what is left)
used by many      grid, operands (copies to shared memory), warp_tiles (tensor instructions)
"""
