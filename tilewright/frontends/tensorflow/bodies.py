"""Graphs and functions as nodes by name, and the references in their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.frontends.tensorflow.wire import Message
from tilewright.support.errors import UserError, nearest

#: Names of the results of operators with several, by which functions refer to them.
_RESULTS: Final = {
    op: names.split()
    for ops, names in {
        "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3": (
            "y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3"
        ),
        "TopK TopKV2": "values indices",
        "Unique UniqueV2": "y idx",
        "UniqueWithCounts UniqueWithCountsV2": "y idx count",
        "ListDiff": "out idx",
        "Switch RefSwitch": "output_false output_true",
        "Merge RefMerge": "output value_index",
        "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits": "loss backprop",
        "NonMaxSuppressionV4": "selected_indices valid_outputs",
        "NonMaxSuppressionV5": "selected_indices selected_scores valid_outputs",
        "CombinedNonMaxSuppression": "nmsed_boxes nmsed_scores nmsed_classes valid_detections",
        "MaxPoolWithArgmax": "output argmax",
        "TensorArrayV3": "handle flow",
        "TensorArrayConcatV3": "value lengths",
        "TensorListPopBack": "output_handle tensor",
        "TensorListConcat TensorListConcatV2": "tensor lengths",
        "LSTMBlockCell BlockLSTM BlockLSTMV2": "i cs f o ci co h",
        "GRUBlockCell": "r u c h",
        "StringSplitV2": "indices values shape",
        "Qr": "q r",
        "Svd": "s u v",
    }.items()
    for op in ops.split()
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A result of a node, or a parameter of a function."""

    node: str
    index: int


class Body:
    """The nodes of a graph or a function."""

    def __init__(self, name: str, nodes: Sequence[Message], params: Sequence[str] = ()) -> None:
        self.name, self.params = name, list(params)
        self.nodes: dict[str, Message] = {n.name: n for n in nodes}
        self._param_set = frozenset(params)
        self._inputs: dict[str, list[Reference]] = {}
        self.is_function = False
        self.results: dict[str, str] = {}
        self.outputs: list[str] = []

    @classmethod
    def of_function(cls, proto: Message) -> Body:
        """A function of the library."""
        signature = proto.signature
        body = cls(signature.name, proto.node_def, [a.name for a in signature.input_arg])
        body.is_function = True
        body.results, body.outputs = dict(proto.ret), [a.name for a in signature.output_arg]
        return body

    def node(self, name: str) -> Message:
        found = self.nodes.get(name)
        if found is None:
            raise UserError(f"there is no node {name}", remedy=nearest(name, self.nodes))
        return found

    def reference(self, text: str) -> Reference | None:
        """The result that an input refers to; None for a control dependency."""
        if text.startswith("^"):
            return None
        name, *rest = text.split(":")
        if not rest:
            return Reference(name, 0)
        index = int(rest[-1])
        if not 0 <= index < 1 << 20:
            raise UserError(f"an input is {text}")
        if len(rest) == 2:
            names = _RESULTS.get(self.node(name).op, ())
            index += names.index(rest[0]) if rest[0] in names else 0
        return Reference(name, index)

    def is_param(self, name: str) -> bool:
        return name in self._param_set

    def inputs(self, node: Message) -> list[Reference]:
        """The results that a node uses."""
        found = self._inputs.get(node.name)
        if found is None:
            found = [r for text in node.input if (r := self.reference(text)) is not None]
            self._inputs[node.name] = found
        return found
