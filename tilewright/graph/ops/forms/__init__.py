"""Forms of operators that only passes make: blocked channels, Winograd, im2col, phases."""
