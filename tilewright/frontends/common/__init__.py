"""What all front ends share.

converters.py    a table from a framework's operators to functions that emit ours
operands.py      what a converter sees of a node: operands as values, sizes and numbers
converting.py    one node at a time; located.py, errors that name the node they come from
missing.py       operators that nothing converts, reported all at once
structure.py     values that must be known before a graph can be built: axes, counts, ranks
input_shapes.py  shapes of inputs: what a file declares, refined by what the caller gives
borders.py       inputs and outputs by their names
padding.py       "same" padding, and dimensions as numbers
boxes.py         boxes of detectors
files.py         files as arrays, mapped; wire.py, protocol buffers, field by field
damaged.py       files whose parts do not fit together, reported as one clear error
"""
