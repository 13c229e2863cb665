"""Models from other tools, as graphs."""

# pyright: reportUnusedImport=false
from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.frontends.onnx import FailedNode, from_onnx
from tilewright.frontends.sources import FrontEnd, Source, front_end_of, read_model
from tilewright.frontends.torch import from_graph, from_torch, tensor_array
