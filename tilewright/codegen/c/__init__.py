"""Code generation as portable C, for any compiler; `backend` is the entry point.

The output is C99 with libm and libc, and no more: no vectors, no pragmas, no builtins. Signed
arithmetic that wraps around goes through unsigned types, shifts and divisions through functions
that are defined for all operands, bit casts through `memcpy`. Compile it without options that
change floating-point semantics (`-ffast-math`), and with `-ffp-contract=off` where a compiler fuses
products and sums by itself.
"""
