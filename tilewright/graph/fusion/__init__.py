"""From groups of calls to loop functions: kinds of loops, sharing of memory, kernels."""
