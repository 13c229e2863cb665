"""Facts about loops, blocks and buffers: predicates that primitives use."""
