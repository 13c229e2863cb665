"""What shows compiled models: values between kernels, and the roof over them."""
