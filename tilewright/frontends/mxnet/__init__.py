"""MXNet's networks as graphs: a symbol in JSON and its parameters, as Module and Gluon export them.

    symbol.py       the JSON of all versions -> nodes, checked
    params.py       the file of parameters: arrays by name
    attributes.py   attributes, which are all text, as numbers, shapes and flags
    importer.py     walks the nodes; which variables are inputs; graphs inside nodes
    node.py         what a converter sees of a node
    table.py        which converter serves which operator
    front_end.py    the row of this folder in the table of front ends
    ops/            the converters, one family of operators a file

MXNet is not needed. Symbols do not say which shapes inputs have: give `shapes`, or the model
is built when it first runs.
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.mxnet.front_end import FRONT_END
from tilewright.frontends.mxnet.importer import from_mxnet
from tilewright.frontends.mxnet.table import TABLE
