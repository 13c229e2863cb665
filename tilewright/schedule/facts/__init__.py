"""What holds for loops, blocks and buffers: predicates that primitives ask."""
