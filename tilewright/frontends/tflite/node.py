"""The interface of nodes for converters: operands as values, options, quantization of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontends.common.operands import Operands
from tilewright.frontends.tflite import schema
from tilewright.frontends.tflite.load import Operator, Tensor
from tilewright.frontends.tflite.tensors import Quantization, element_type
from tilewright.graph import Value
from tilewright.ir import Const, DType
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.frontends.tflite.importer import Importer, Scope


class Node(Operands):
    """One node during its conversion; see `Operands`.

    `n.option("axis")` is an option by its name in `schema`. `n.tensor(0)` and `n.out(0)` are the
    declarations of an operand and of a result in the file.
    """

    def __init__(
        self, importer: Importer, operator: Operator, inputs: Sequence[Value | None], scope: Scope
    ) -> None:
        super().__init__(importer.builder, importer.structure, inputs)
        self.importer, self.scope, self.operator = importer, scope, operator
        self.op = operator.name
        self._fields = schema.options_of(operator.name)

    def operand_text(self, index: int) -> str:
        return f"operand {index} ({self.tensor(index).name})"

    # ---- what the file declares -----------------------------------------------------------------

    def has(self, index: int) -> bool:
        """Whether an operand is given."""
        return self.get(index) is not None

    def tensor(self, index: int) -> Tensor:
        """The declaration of an operand in the file."""
        return self.scope.graph.tensors[self.operator.inputs[index]]

    def out(self, index: int = 0) -> Tensor:
        """The declaration of a result in the file."""
        return self.scope.graph.tensors[self.operator.outputs[index]]

    @property
    def output_count(self) -> int:
        return len(self.operator.outputs)

    def out_dtype(self, index: int = 0) -> DType:
        """The element type of a result."""
        return element_type(self.out(index).type, f"result {index}")

    def quantization(self, index: int) -> Quantization:
        """How an operand is quantized, which it must be."""
        return _required(self.tensor(index))

    def out_quantization(self, index: int = 0) -> Quantization:
        """How a result is quantized, which it must be."""
        return _required(self.out(index))

    @property
    def is_quantized(self) -> bool:
        """Whether it computes with integers that represent real numbers."""
        first = next((k for k, i in enumerate(self.operator.inputs) if i >= 0), None)
        return first is not None and self.is_quantized_at(first)

    def is_quantized_at(self, index: int) -> bool:
        """Whether the integers of an operand represent real numbers."""
        tensor = self.tensor(index)
        return tensor.quantization is not None and tensor.type in _STORED

    def extent(self, index: int, axis: int) -> int:
        """An extent of an operand, which must be a number because the structure depends on it."""
        dim = self[index].shape[axis]
        if not isinstance(dim, Const):
            self.structure.require_dim(dim, f"extent {axis} of {self.operand_text(index)}")
        assert isinstance(dim, Const)
        return int(dim.value)

    # ---- options --------------------------------------------------------------------------------

    def option(self, name: str) -> Any:
        """An option: a number, a truth value, a text or a list of numbers."""
        field = self._fields[name]
        table = self.operator.options
        if field.form == "s":
            return "" if table is None else table.text(field.number)
        if field.form.endswith("*"):
            form = np.dtype(f"<{field.form[0]}4")
            return [] if table is None else table.array(field.number, form).tolist()
        default = bool(field.default) if field.form == "?" else field.default
        return default if table is None else table.number(field.number, field.form, default)

    @property
    def activation(self) -> str:
        """The activation that is part of the operator."""
        number: int = self.option("activation")
        if not 0 <= number < len(schema.ACTIVATIONS):
            raise UserError(f"there is no activation {number}")
        return schema.ACTIVATIONS[number]


#: Integer types that are quantized where a scale is given.
_STORED = ("int8", "uint8", "int16", "int32", "int4", "uint4", "int2")


def _required(tensor: Tensor) -> Quantization:
    if tensor.quantization is None:
        raise UserError(f"the tensor {tensor.name} of {tensor.type} has no scale")
    return tensor.quantization
