"""Kernels: loop functions as object code, one by one or many at once."""
