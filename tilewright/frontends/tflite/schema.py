"""TFLite's schema: operators by number, types, and the fields of options in order."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

#: Field numbers of the tables that make up a model.
MODEL: Final = {
    "version": 0,
    "codes": 1,
    "subgraphs": 2,
    "buffers": 4,
    "metadata": 6,
    "signatures": 7,
}
SUBGRAPH: Final = {"tensors": 0, "inputs": 1, "outputs": 2, "operators": 3, "name": 4}
TENSOR: Final = {
    "shape": 0, "type": 1, "buffer": 2, "name": 3, "quantization": 4, "is_variable": 5,
    "sparsity": 6, "signature": 7, "has_rank": 8, "external": 10,
}  # fmt: skip
QUANTIZATION: Final = {"scale": 2, "zero_point": 3, "details_type": 4, "dimension": 6}
SPARSITY: Final = {"order": 0, "blocks": 1, "dimensions": 2}
DIMENSION: Final = {
    "format": 0, "size": 1, "segments_type": 2, "segments": 3, "indices_type": 4, "indices": 5
}  # fmt: skip
OPERATOR: Final = {
    "code": 0, "inputs": 1, "outputs": 2, "options": 4, "custom": 5, "intermediates": 8,
    "custom_offset": 9, "custom_size": 10,
}  # fmt: skip
CODE: Final = {"old_builtin": 0, "custom": 1, "version": 2, "builtin": 3}
BUFFER: Final = {"data": 0, "offset": 1, "size": 2}
SIGNATURE: Final = {"inputs": 0, "outputs": 1, "key": 2, "subgraph": 4}
NAMED: Final = {"name": 0, "index": 1}

#: Element types by number; those without a name in the graph are not tensors of numbers.
TYPES: Final = (
    "float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64",
    "int8", "float64", "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4",
    "bfloat16", "int2", "uint4", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip

#: Activations that are part of other operators, by number.
ACTIVATIONS: Final = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")

_OPERATORS: Final = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6
RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND
TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX
MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV
SPARSE_TO_DENSE TILE
EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX
PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE
ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS
SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG
QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5
SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM
CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND
HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM
ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD
STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP
STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE
STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE
STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR
STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT
STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE
STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
STABLEHLO_CASE
"""

#: Names of built-in operators by number.
OPERATORS: Final = tuple(_OPERATORS.split())

#: The fields of options: operators, then fields in order of their numbers, each with its type in
#: the `struct` module's notation ("i*" is a vector, "s" a string) and its default if that is not 0.
#: Indented lines are continuations.
_OPTIONS: Final = """
CONV_2D: padding b, stride_w i, stride_h i, activation b, dilation_w i=1, dilation_h i=1
CONV_3D CONV_3D_TRANSPOSE: padding b, stride_d i, stride_w i, stride_h i, activation b,
    dilation_d i=1, dilation_w i=1, dilation_h i=1
AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D: padding b, stride_w i, stride_h i, filter_w i,
    filter_h i, activation b
DEPTHWISE_CONV_2D: padding b, stride_w i, stride_h i, multiplier i, activation b, dilation_w i=1,
    dilation_h i=1
TRANSPOSE_CONV: padding b, stride_w i, stride_h i, activation b
FULLY_CONNECTED: activation b, weights_format b, keep_num_dims ?, asymmetric ?
SVDF: rank i, activation b, asymmetric ?
RNN: activation b, asymmetric ?
UNIDIRECTIONAL_SEQUENCE_RNN: time_major ?, activation b, asymmetric ?
BIDIRECTIONAL_SEQUENCE_RNN: time_major ?, activation b, merge_outputs ?, asymmetric ?
LSTM: activation b, cell_clip f, proj_clip f, kernel_type b, asymmetric ?
UNIDIRECTIONAL_SEQUENCE_LSTM: activation b, cell_clip f, proj_clip f, time_major ?, asymmetric ?,
    diagonal ?
BIDIRECTIONAL_SEQUENCE_LSTM: activation b, cell_clip f, proj_clip f, merge_outputs ?,
    time_major ?=1, asymmetric ?
SOFTMAX: beta f
CONCATENATION: axis i, activation b
ADD SUB: activation b, pot_scale_int16 ?=1
MUL DIV L2_NORMALIZATION: activation b
LOCAL_RESPONSE_NORMALIZATION: radius i, bias f, alpha f, beta f
RESIZE_BILINEAR: old_height i, old_width i, align_corners ?, half_pixel_centers ?
RESIZE_NEAREST_NEIGHBOR: align_corners ?, half_pixel_centers ?
RESHAPE: shape i*
SPACE_TO_DEPTH DEPTH_TO_SPACE: block_size i
EMBEDDING_LOOKUP_SPARSE: combiner b
GATHER: axis i, batch_dims i
MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL: keep_dims ?
SQUEEZE: dims i*
SPLIT SPLIT_V: count i
STRIDED_SLICE: begin i, end i, ellipsis i, new_axis i, shrink i, offset ?
CAST: from_type b, to_type b
ARG_MAX ARG_MIN: type b
SHAPE: type b
FAKE_QUANT: min f, max f, bits i, narrow ?
PACK: count i, axis i
UNPACK: count i, axis i
ONE_HOT: axis i
LEAKY_RELU: alpha f
MIRROR_PAD: mode b
UNIQUE: type b=2
REVERSE_SEQUENCE: time i, batch i
IF: then i, else i
WHILE: cond i, body i
CALL: subgraph I
CALL_ONCE: subgraph i
BATCH_MATMUL: adj_x ?, adj_y ?, asymmetric ?
CUMSUM: exclusive ?, reverse ?
HASHTABLE: table i, key_type b, value_type b
VAR_HANDLE: container s, shared_name s
RANDOM_STANDARD_NORMAL RANDOM_UNIFORM MULTINOMIAL: seed q, seed2 q
BUCKETIZE: boundaries f*
GELU: approximate ?
"""


class Field(NamedTuple):
    """A field of options."""

    number: int
    form: str
    default: int


@cache
def options_of(operator: str) -> dict[str, Field]:
    """The fields of an operator's options by name."""
    return _all_options().get(operator, {})


@cache
def _all_options() -> dict[str, dict[str, Field]]:
    found: dict[str, dict[str, Field]] = {}
    for line in _OPTIONS.strip().replace("\n    ", " ").splitlines():
        operators, fields = line.split(": ")
        parsed = dict(map(_field, range(99), fields.split(", ")))
        found.update(dict.fromkeys(operators.split(), parsed))
    return found


def _field(number: int, text: str) -> tuple[str, Field]:
    name, form = text.split(" ")
    form, _, default = form.partition("=")
    return name, Field(number, form, int(default or 0))
