"""Machine instructions that LLVM does not select by itself, a file for each architecture."""
