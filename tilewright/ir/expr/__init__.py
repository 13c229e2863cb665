"""Scalar expressions: one family for loop bodies, indices and the dimensions of tensor types.

Nodes
    Var(name, dtype)                 a unique object; its name is a hint
    Const(value, dtype)
    Unary(op, a)                     neg not bitnot
    Binary(op, a, b)                 add sub mul div floordiv floormod truncdiv truncmod min max;
                                     eq ne lt le gt ge; and or; bitand bitor bitxor shl shr
    Select(condition, a, b)          only the chosen side is evaluated; `and` and `or` are lazy too
    Cast(dtype, a)
    Load(buffer, indices, mask)
    Call(name, args, dtype)          an intrinsic (`ir.intrinsics`)
    Ramp(base, stride, lanes)        the vector base, base + stride, …
    Broadcast(a, lanes)

Meaning
    Integers wrap around, but those of type int64 also serve as indices, and proofs about them
    assume that their sums and products do not overflow. `floordiv`/`floormod` round to minus
    infinity, `truncdiv`/`truncmod` to zero; an integer divided by zero gives 0, remainder 0.
    Floats follow IEEE 754: NaN, infinities and signed zeros are kept; a multiplication and an
    addition may be contracted to a fused one. `min` and `max` pass on NaN, and of two zeros may
    give either. Comparisons with NaN are false, `ne` is true.
    Each operation on float16 and bfloat16 is computed in float32 and its result rounded to the
    type; the types under those (float8 and kin, integers under a byte) are only stored and
    converted.
    Casts: integer to narrower integer wraps; float to integer truncates and saturates, NaN gives 0;
    to a narrower float rounds the exact value once, to nearest even, and what is too large becomes
    infinity (NaN in formats without one, the greatest value in those without NaN); to bool asks
    "is it not zero?".
    A `Load` outside its buffer is an error that the build proves absent or checks at run time.

Expressions (but for `Var`) are interned: equal means identical, so `is` compares and hashing is a
pointer. `a == b` builds a comparison, whose truth value is that identity.
"""

# pyright: reportUnusedImport=false
from tilewright.ir.expr.derived import all_of, any_of, is_const, maximum, minimum, select
from tilewright.ir.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    as_expr,
    binary,
    broadcast,
    cast,
    const,
    match_types,
    unary,
)
from tilewright.ir.expr.operators import Operators
