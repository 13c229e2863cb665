"""ONNX models as graphs.

    load.py         a path, bytes or a ModelProto -> a model whose outer shape is sound
    tensors.py      tensors of all element types; external.py, those in files beside the model;
                    wire.py, those that stay in its own
    importer.py     walks the nodes; scopes, subgraphs, functions
    table.py        which converter serves which operator, by domain, name and version
    node.py         what a converter sees of a node
    front_end.py    the row of this folder in the table of front ends
    failed.py       small models of a node that could not be converted, for reports
    ops/            the converters, one family of operators a file
    writing/        the other way: graphs as models

The `onnx` package is an optional extra and is imported when a model is read, not before.
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.onnx.failed import FailedNode
from tilewright.frontends.onnx.from_onnx import from_onnx
from tilewright.frontends.onnx.front_end import FRONT_END
from tilewright.frontends.onnx.writing import save_onnx, to_onnx
