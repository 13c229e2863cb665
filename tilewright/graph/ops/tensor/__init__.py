"""Elements in other shapes, orders and positions; tensors that are generated."""
