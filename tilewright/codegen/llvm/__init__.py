"""Code generation through LLVM: all native targets, and the thread pool.

`backend` puts it together.
"""
