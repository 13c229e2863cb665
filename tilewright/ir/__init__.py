"""The intermediate representation: types, expressions, buffers, statements, loop functions."""

# pyright: reportUnusedImport=false
from tilewright.ir.buffer import SCOPES, Buffer, as_extent, symbolic_dims
from tilewright.ir.equal import same_function, structural_hash
from tilewright.ir.evaluate import evaluate, operation
from tilewright.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Operators,
    Ramp,
    Select,
    Unary,
    Var,
    all_of,
    any_of,
    as_expr,
    binary,
    broadcast,
    cast,
    const,
    is_const,
    match_types,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.formulas import CHEAP, cost_of, is_cheap, product_of_loads, work_of
from tilewright.ir.interpret import interpret
from tilewright.ir.intrinsics import (
    INTRINSICS,
    TRANSCENDENTAL,
    Intrinsic,
    address_of,
    call,
    declare,
    find_intrinsic,
    is_pure,
    regroup,
    reinterpret,
)
from tilewright.ir.plain_names import with_plain_names
from tilewright.ir.regions import infer_regions, make_block, whole_region, with_inferred_regions
from tilewright.ir.renew import bound_by, renew
from tilewright.ir.stmt import (
    ITER_KINDS,
    LOOP_KINDS,
    TRUE,
    Alloc,
    Assert,
    Block,
    Evaluate,
    For,
    Function,
    If,
    Iter,
    IterKind,
    Let,
    LoopKind,
    Param,
    Range,
    Region,
    Seq,
    Span,
    Stmt,
    Store,
    While,
    seq,
)
from tilewright.ir.text.heads import SuiteHead
from tilewright.ir.text.names import Namer, find_dtype, plain_name
from tilewright.ir.text.parse_expr import ExprReader
from tilewright.ir.text.parser import StmtReader, parse_function
from tilewright.ir.text.printer import (
    expr_text,
    function_text,
    listing,
    plain_text,
    stmt_text,
)
from tilewright.ir.text.source import Source
from tilewright.ir.text.syntax import dotted
from tilewright.ir.threads import (
    BLOCK_AXES,
    KEEPS_PAIRS,
    STAGES,
    THREAD_AXES,
    barrier,
    grid_barrier,
    is_arrival,
    is_barrier,
    is_cooperative,
    is_for_all_threads,
    is_grid_barrier,
    is_over_blocks,
    is_over_threads,
    threads_of,
)
from tilewright.ir.verify import MAX_NESTING, verify
from tilewright.ir.visit import (
    all_exprs,
    child_exprs,
    child_stmts,
    free_vars,
    loads_in,
    map_children,
    map_expr,
    map_exprs,
    map_function,
    map_region,
    map_stmt,
    replace_buffers,
    substitute,
    substitute_stmt,
    walk,
    walk_expr,
)
from tilewright.ir.warps import (
    EXCHANGED_BYTES,
    FACTORS,
    GROUP,
    GROUP_COLUMNS,
    GROUP_PRODUCTS,
    GROUP_ROWS,
    NEIGHBOURS,
    OWNERS,
    PITCH,
    ROW_BYTES,
    SUMS,
    SWIZZLE_BYTES,
    TILE_SIDE,
    WARP,
    WARP_PRODUCTS,
    Factors,
    GroupProduct,
    WarpProduct,
    find_factors,
    sum_place,
    swizzled,
)
from tilewright.support.dtype import DType
