"""Darknet's networks as graphs: a cfg file and its weights.

    cfg.py          the text -> sections with their options
    weights.py      the file of weights: header and numbers, taken layer by layer
    importer.py     walks the sections; which layers are outputs
    layer.py        what a converter sees of a section
    table.py        which converter serves which section
    front_end.py    the row of this folder in the table of front ends
    ops/            the converters, one family of layers a file

Where readers differ, OpenCV's is followed: batch normalisation divides by sqrt(variance + 1e-6),
and the outputs of `yolo` and `region` are rows of boxes (see ops/detection.py).
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.darknet.front_end import FRONT_END
from tilewright.frontends.darknet.importer import from_darknet
from tilewright.frontends.darknet.table import TABLE
