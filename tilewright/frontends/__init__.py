"""Models from other tools, as graphs."""

# pyright: reportUnusedImport=false
from tilewright.frontends.caffe import from_caffe
from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.frontends.darknet import from_darknet
from tilewright.frontends.mxnet import from_mxnet
from tilewright.frontends.onnx import FailedNode, from_onnx, save_onnx, to_onnx
from tilewright.frontends.sources import (
    FrontEnd,
    Source,
    front_end_of,
    is_model_folder,
    operators_of,
    read_model,
)
from tilewright.frontends.torch import from_graph, from_torch, tensor_array
