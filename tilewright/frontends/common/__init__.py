"""What all front ends are made with.

converters.py   a table from a framework's operators to functions that emit ours
operands.py     what a converter sees of a node: operands as values, sizes and numbers
missing.py      operators that nothing converts, told all at once
structure.py    values that must be known before a graph can be built: axes, counts, ranks
input_shapes.py shapes of inputs: what a file declares, refined by what the caller gives
borders.py      inputs and outputs by their names
located.py      errors that name the node that they come from
mapped.py       files that are mapped rather than read
padding.py      "same" padding, and dimensions as numbers
damaged.py      files whose parts do not fit together, told as one clear error
"""
