"""Instructions of machines that LLVM does not choose by itself, a file for each architecture."""
