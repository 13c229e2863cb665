"""What shows compiled models: values between kernels, the roof over them, times foretold."""
