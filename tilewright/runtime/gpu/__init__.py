"""Devices whose memory is their own and whose kernels are launched."""
