"""Operators of neural networks as compute definitions, one short function each."""

# pyright: reportUnusedImport=false
from tilewright.tensor.ops.convolution import conv2d_blocked, conv2d_nchw, conv2d_nhwc
from tilewright.tensor.ops.depthwise import (
    depthwise_conv2d_blocked,
    depthwise_conv2d_nchw,
    depthwise_conv2d_nhwc,
)
from tilewright.tensor.ops.elementwise import add, elementwise, gelu, relu
from tilewright.tensor.ops.layout import from_blocked, pack_conv_weights, to_blocked
from tilewright.tensor.ops.matmul import batch_matmul, dense, matmul
from tilewright.tensor.ops.normalize import layer_norm, softmax
from tilewright.tensor.ops.pooling import avg_pool2d, max_pool2d
from tilewright.tensor.ops.reduce import max, mean, min, sum
from tilewright.tensor.ops.reshape import reshape
from tilewright.tensor.ops.shape import concat, pad, take, transpose
