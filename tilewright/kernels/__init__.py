"""Kernels: loop functions compiled to object code, one by one or many at once."""
