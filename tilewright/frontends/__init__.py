"""Models from other tools, as graphs."""

# pyright: reportUnusedImport=false
from tilewright.frontends.onnx import FailedNode, UnspecialisedError, from_onnx, input_names
