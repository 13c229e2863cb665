"""From groups of calls to loop functions: what loops do, what shares memory, kernels."""
