"""GPU kernels as loops, for the executor that runs them on the CPU."""
