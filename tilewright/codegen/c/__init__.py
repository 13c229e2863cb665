"""Code generation as portable C, for any compiler; `backend` puts it together.

What is written is C99 with libm and libc, and no more: no vectors, no pragmas, no builtins. Signed
arithmetic that wraps around goes through unsigned types, shifts and divisions through functions
that are defined for all operands, bits are seen as another type by `memcpy`. Compile it without
options that change the meaning of floating point (`-ffast-math`), and with `-ffp-contract=off`
where a compiler fuses products and sums by itself.
"""
