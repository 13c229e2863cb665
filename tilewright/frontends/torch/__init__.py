"""PyTorch's modules and exported programs as graphs.

    front_end.py    the row of this folder in the table of front ends
    exported.py     a module, traced by torch.export, in operators that have converters
    archive.py      .pt2 files, read without running anything in them
    from_torch.py   from an exported program to a graph
    from_graph.py   the same for graphs that torch.compile traced
    importer.py     walks the nodes
    table.py        which converter serves which operator
    node.py         what a converter sees of a node
    symbols.py      sizes, which are expressions of sympy there
    tensors.py      element types, and weights over the memory that they have
    ops/            the converters, one family of operators a file

The `torch` package is an optional extra and is imported when a model is read, not before.
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.torch.from_graph import ConvertedGraph, from_graph
from tilewright.frontends.torch.from_torch import first_states, from_torch
from tilewright.frontends.torch.front_end import FRONT_END
from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import TABLE, register_converter, unregister_converter
from tilewright.frontends.torch.tensors import array_of as tensor_array
