"""Passes over graphs: plain functions `Module -> Module`, one per file."""

# pyright: reportUnusedImport=false
from tilewright.graph.passes.absorb_transposes import absorb_transposes
from tilewright.graph.passes.algebra import algebra
from tilewright.graph.passes.bind_shapes import bind_shapes, require_shapes
from tilewright.graph.passes.combine_parallel import combine_parallel
from tilewright.graph.passes.common_subexpressions import common_subexpressions
from tilewright.graph.passes.constant_folding import constant_folding, folding_by
from tilewright.graph.passes.dead_code import dead_code
from tilewright.graph.passes.fold_scale import fold_scale
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.fuse_attention import fuse_attention
from tilewright.graph.passes.inline_functions import inline_functions
from tilewright.graph.passes.legalize import legalize
from tilewright.graph.passes.narrow_products import narrow_products
from tilewright.graph.passes.narrow_values import narrow_values
from tilewright.graph.passes.outline import NATIVE_PREFIX, foreign_bindings, is_native, outline
from tilewright.graph.passes.pad_operands import pad_operands
from tilewright.graph.passes.plan_layouts import plan_layouts
from tilewright.graph.passes.quantized.quantized_products import (
    fills_byte_products,
    quantized_products,
)
from tilewright.graph.passes.quantized.unpack_panels import unpack_panels
from tilewright.graph.passes.quantized.widen_where_read import widen_where_read
from tilewright.graph.passes.shape_arithmetic import shape_arithmetic
from tilewright.graph.passes.simplify_inference import simplify_inference
from tilewright.graph.passes.sink_transposes import sink_transposes
from tilewright.graph.passes.tail_recursion import tail_recursion
from tilewright.graph.passes.unroll_loops import unroll_loops
from tilewright.graph.passes.widen_images import widen_images
from tilewright.graph.passes.winograd import winograd
