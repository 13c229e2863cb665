"""Devices with their own memory, on which kernels are launched."""
