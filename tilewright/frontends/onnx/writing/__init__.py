"""Graphs as ONNX files, which other tools load too.

to_onnx.py      a module -> an `onnx.ModelProto`, or a file
writer.py       values, constants and dimensions by name, while nodes are written
table.py        which function writes which operator
elementwise.py  linear.py  structure.py  reductions.py  images.py  quantized.py: the rows, by
                family
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.onnx.writing.to_onnx import save_onnx, to_onnx
