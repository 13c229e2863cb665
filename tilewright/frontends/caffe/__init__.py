"""Caffe's networks as graphs: a prototxt and its caffemodel.

    prototxt.py     protocol buffers as text -> messages, of which converters read known fields
    caffemodel.py   the weights of all layers, by name, out of the binary file
    net.py          the layers that a network has when it is used: phases, old names, inputs
    importer.py     walks the layers; which blobs are outputs
    layer.py        what a converter sees of a layer
    table.py        which converter serves which layer
    front_end.py    the row of this folder in the table of front ends
    ops/            the converters, one family of layers a file

Neither Caffe nor protobuf is needed.
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.caffe.front_end import FRONT_END
from tilewright.frontends.caffe.importer import from_caffe
from tilewright.frontends.caffe.table import TABLE
