"""The graph: typed, functional programs over tensors with symbolic shapes and control flow."""

# pyright: reportUnusedImport=false
from tilewright.graph import passes
from tilewright.graph.building.builder import Builder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.fusion.groups import KernelCall, KernelTable
from tilewright.graph.host import HostProgram, kernel_bindings, lower_program
from tilewright.graph.ir import (
    Array,
    Binding,
    Call,
    CallFunction,
    Closure,
    Construct,
    DataDef,
    Function,
    Fused,
    Graph,
    If,
    Loop,
    MakeTuple,
    Match,
    Module,
    Node,
    Project,
    Read,
    Value,
    all_graphs,
)
from tilewright.graph.ir.attributes import Dim, Dims, Floats, Ints, Strings
from tilewright.graph.ir.op import OPS, OpDef, find_op, op
from tilewright.graph.ir.types import (
    ANY,
    STRING,
    DataType,
    FunctionType,
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    UnknownType,
    dims_of,
    dtype_of,
    fresh_dim,
    is_plain_dim,
    product,
)
from tilewright.graph.ir.verify import verify
from tilewright.graph.ops.quantized.matmul_nbits import packed_bits, unpacked_bits
from tilewright.graph.precision.words import precision_text
from tilewright.graph.rewriting.context import (
    TF32,
    PassContext,
    PassPrinter,
    PassTimer,
    PassVerifier,
    Step,
    run_pass,
    run_passes,
)
from tilewright.graph.rewriting.decisions import Decision, DecisionTable, decision_key
from tilewright.graph.rewriting.parts import module_part, without_data
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.graph.rules.weights import Weighted, weighted
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.graph.text.parser import parse_module
from tilewright.graph.text.printer import binding_text, function_text, module_constants, module_text
