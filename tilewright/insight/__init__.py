"""Analysis of compiled models: intermediate values, roofline, predicted times."""
