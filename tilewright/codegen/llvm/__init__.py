"""Code generation through LLVM: all native targets, and the thread pool.

`backend` is the entry point.
"""
