"""Compute definitions (`te`), imperative kernels (`script`)."""

# pyright: reportUnusedImport=false
from tilewright.tensor import te
from tilewright.tensor.language import (
    ElementType,
    alloc,
    bf16,
    block,
    boolean,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    let,
    parallel,
    thread,
    u8,
    u16,
    u32,
    u64,
    unrolled,
    vectorized,
)
from tilewright.tensor.script import script
