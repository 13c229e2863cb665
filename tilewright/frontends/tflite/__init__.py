"""TFLite models as graphs.

    flatbuffer.py   tables of a flatbuffer by the numbers of their fields, every offset checked
    schema.py       operators, element types and options as TFLite's schema numbers them
    load.py         a path or bytes -> subgraphs, tensors, operators
    tensors.py      constants of all element types, dense and sparse; how tensors are quantized
    states.py       variables that keep a state: inputs and outputs of the graph
    importer.py     walks the operators; subgraphs, variables, tables
    table.py        which converter serves which operator
    node.py         what a converter sees of a node
    fixed_point.py  TFLite's integer arithmetic for scales
    images.py       images N×H×W×C by operators on N×C×H×W
    front_end.py    the row of this folder in the table of front ends
    ops/            the converters, one family of operators a file

Nothing of TensorFlow or LiteRT is needed.
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.tflite.from_tflite import first_states, from_tflite
from tilewright.frontends.tflite.front_end import FRONT_END
from tilewright.frontends.tflite.table import TABLE
