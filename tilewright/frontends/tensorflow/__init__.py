"""TensorFlow models as graphs: frozen GraphDefs and SavedModels, read without TensorFlow.

wire.py         messages in protobuf's wire format, looked at where they lie; messages.py, which
                fields they have
tensors.py      tensors and element types
sorted_table.py the index of a checkpoint, a sorted table of keys; bundle.py, the tensors in it
load.py         a path or bytes -> nodes, functions, inputs and outputs
variables.py    which variables and tables hold what, from what the restoring nodes say
importer.py     converts nodes when their results are needed; scopes, functions
loops.py        loops of both generations; lists.py, tensors that loops write one by one
node.py         what a converter sees of a node
table.py        which converter serves which operator
front_end.py    the row of this folder in the table of front ends
ops/            the converters, one family of operators a file
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.tensorflow.from_tensorflow import from_tensorflow
from tilewright.frontends.tensorflow.front_end import FRONT_END
