"""Forms of operators that only passes emit: blocked channels, Winograd, im2col, phases."""
