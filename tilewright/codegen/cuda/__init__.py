"""NVIDIA GPUs as a back end: PTX by LLVM, launched by code for the processor beside them."""
