"""TensorFlow's functions between the layers of Keras 2, by the operations of `keras.ops`."""

from __future__ import annotations

from typing import Any, Final

from tilewright.frontends.keras.layer import Layer
from tilewright.frontends.keras.layers.operations import index_of
from tilewright.frontends.keras.table import TABLE, converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

#: The operations of `keras.ops` that are equal to functions.
_FUNCTIONS: Final = {
    "__operators__.add": "Add",
    "cast": "Cast",
    "clip_by_value": "Clip",
    "concat": "Concatenate",
    "expand_dims": "ExpandDims",
    "linalg.matmul": "Matmul",
    "math.abs": "Abs",
    "math.add": "Add",
    "math.divide": "Divide",
    "math.exp": "Exp",
    "math.greater": "Greater",
    "math.less": "Less",
    "math.log": "Log",
    "math.maximum": "Maximum",
    "math.minimum": "Minimum",
    "math.multiply": "Multiply",
    "math.negative": "Negative",
    "math.not_equal": "NotEqual",
    "math.pow": "Power",
    "math.reduce_max": "Max",
    "math.reduce_mean": "Mean",
    "math.reduce_min": "Min",
    "math.reduce_sum": "Sum",
    "math.rsqrt": "Rsqrt",
    "math.sigmoid": "Sigmoid",
    "math.sqrt": "Sqrt",
    "math.square": "Square",
    "math.subtract": "Subtract",
    "math.tanh": "Tanh",
    "math.truediv": "TrueDivide",
    "nn.gelu": "Gelu",
    "nn.leaky_relu": "LeakyRelu",
    "nn.relu": "Relu",
    "nn.relu6": "Relu6",
    "nn.sigmoid": "Sigmoid",
    "nn.silu": "Silu",
    "nn.softmax": "Softmax",
    "reshape": "Reshape",
    "split": "Split",
    "squeeze": "Squeeze",
    "stack": "Stack",
    "tile": "Tile",
    "transpose": "Transpose",
}
#: Names of arguments in `keras.ops`.
_RENAMED: Final = {
    "clip_value_max": "x_max",
    "clip_value_min": "x_min",
    "multiples": "repeats",
    "num_or_size_splits": "indices_or_sections",
    "perm": "axes",
    "shape": "newshape",
    "alpha": "negative_slope",
    "b": "y",
}


@converts("TFOpLambda")
def tensorflow_function(n: Layer) -> Any:
    name = n.config.text("function", "")
    convert = TABLE.find("ops", _FUNCTIONS.get(name, ""))
    if convert is None:
        raise UserError(
            f"the function tf.{name} is not supported",
            remedy="export the model: tf.saved_model.save(model, 'folder')",
        )
    kwargs = {_RENAMED.get(k, k): v for k, v in n.kwargs.items()}
    inner = Layer(n.importer, n.spec, n.stored, n.args, kwargs)
    inner.kind = _FUNCTIONS[name]
    return convert(inner)


@converts("SlicingOpLambda")
def tensorflow_slice(n: Layer) -> Value:
    return n.builder.index(n[0], index_of(n.kwargs.get("slice_spec")))
