"""Numbers as small integers, and products of them."""
