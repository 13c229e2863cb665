"""The functions of an exported library on DLPack tensors, which are checked before the run."""

from __future__ import annotations

from typing import Final

from tilewright.codegen.interface import Dim, Interface, Tensor
from tilewright.codegen.llvm.functions import I32, I64, PTR, Body, Field, Library, Value, ir
from tilewright.codegen.llvm.library.run import set_error
from tilewright.codegen.llvm.library.state import ERROR, variable
from tilewright.ir import DType

_DATA, _DEVICE, _NDIM, _DTYPE = Field(0, I64), Field(8, I32), Field(16, I32), Field(20, I32)
_SHAPE, _STRIDES, _OFFSET = Field(24, PTR), Field(32, PTR), Field(40, I64)
_CPU: Final = 1
#: The return value for tensors that do not fit.
_REFUSED: Final = -2
_KINDS: Final = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_CODES: Final = {
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
#: tvm_ffi's type codes of tensor arguments, and the size of an object's header before the tensor.
_TENSOR_POINTER, _TENSOR_OBJECT, _OBJECT_HEADER = 7, 70, 24


def emit_dlpack(library: Library, model: Interface) -> None:
    """Adds NAME_run_dlpack, and the entry point for tvm_ffi."""
    _check_tensor(library)
    _run_dlpack(library, model)
    if model.offers_tvm_ffi:
        _run_tvm_ffi(library, model)


def _dtype_word(dtype: DType) -> int:
    """code, bits and lanes as stored in DLDataType."""
    code = _CODES.get(dtype.name, _KINDS[dtype.kind])
    bits = 8 if dtype.kind == "bool" else dtype.bits
    return code | bits << 8 | 1 << 16


def _check_tensor(library: Library) -> None:
    """Whether a tensor is in the CPU's memory, has this rank and type, and is contiguous."""
    f = library.define("tw_check_tensor", I32, [PTR, I32, I32, PTR])
    tensor, rank, dtype, name = f.args
    refusals = [
        (f.get(tensor, _DEVICE), I32(_CPU), "%s: the tensor is not in the CPU's memory"),
        (f.get(tensor, _NDIM), rank, "%s: the tensor has another number of dimensions"),
        (f.get(tensor, _DTYPE), dtype, "%s: the tensor has another element type"),
    ]
    for found, wanted, text in refusals:
        with f.when(f.b.icmp_signed("!=", found, wanted)):
            set_error(f, text, name)
            f.ret(I32(_REFUSED))
    strides = f.get(tensor, _STRIDES)
    with f.when(f.is_null(strides)):
        f.ret(I32(0))
    shape, step = f.get(tensor, _SHAPE), f.scratch(8)
    f.put(I64(1), step, Field(0, I64))
    count = f.b.sext(rank, I64)
    with f.loop_from(I64(0), count) as (k, _):
        axis = f.b.sub(f.b.sub(count, I64(1)), k)
        extent = f.b.load(f.at(shape, Field(0), axis, 8), typ=I64)
        stride = f.b.load(f.at(strides, Field(0), axis, 8), typ=I64)
        wanted = f.get(step, Field(0, I64))
        has_gaps = f.b.icmp_signed("!=", stride, wanted)
        with f.when(f.b.and_(has_gaps, f.b.icmp_signed(">", extent, I64(1)))):
            set_error(f, "%s: the tensor has gaps", name)
            f.ret(I32(_REFUSED))
        f.put(f.b.mul(wanted, extent), step, Field(0, I64))
    f.ret(I32(0))


def _run_dlpack(library: Library, model: Interface) -> None:
    f = library.define(f"{model.prefix}_run_dlpack", I32, [PTR, PTR], exported=True)
    tensors = [
        *((t, "input", f.get(f.args[0], Field(8 * k, PTR))) for k, t in enumerate(model.inputs)),
        *((t, "output", f.get(f.args[1], Field(8 * k, PTR))) for k, t in enumerate(model.outputs)),
    ]
    for k, (tensor, kind, value) in enumerate(tensors):
        name = f.b.bitcast(library.text(f"tw_name.{k}", f"{kind} {tensor.name}"), PTR)
        word = I32(_dtype_word(tensor.dtype))
        failed = f.call("tw_check_tensor", value, I32(len(tensor.shape)), word, name)
        with f.when(f.b.icmp_signed("!=", failed, I32(0))):
            f.ret(failed)
    dims: dict[str, Value] = {}
    for tensor, _, value in tensors[: len(model.inputs)]:
        _learn_all(f, tensor, value, dims)
    for tensor, kind, value in tensors:
        _check_shape(f, tensor, kind, value, dims)
    arrays = [f.scratch(8 * max(1, len(group))) for group in (model.inputs, model.outputs)]
    for k, (_, kind, value) in enumerate(tensors):
        place = k if kind == "input" else k - len(model.inputs)
        address = f.b.add(f.get(value, _DATA), f.get(value, _OFFSET))
        f.put(address, arrays[kind == "output"], Field(8 * place, I64))
    if model.dims:
        arrays.append(f.scratch(8 * len(model.dims)))
        for k, name in enumerate(model.dims):
            f.put(dims[name], arrays[-1], Field(8 * k, I64))
    f.ret(f.call(f"{model.prefix}_run", *arrays))


def _extent(f: Body, tensor: Value, axis: int) -> Value:
    return f.get(f.get(tensor, _SHAPE), Field(8 * axis, I64))


def _learn_all(f: Body, tensor: Tensor, value: Value, dims: dict[str, Value]) -> None:
    for axis, dim in enumerate(tensor.shape):
        if not isinstance(dim, int):
            _learn(f, dim, _extent(f, value, axis), dims)


def _learn(f: Body, dim: Dim, extent: Value, dims: dict[str, Value]) -> None:
    """Take a symbolic dimension from the first extent that determines it; all are checked later."""
    if isinstance(dim, str):
        dims.setdefault(dim, extent)
    elif isinstance(dim, tuple):
        op, a, b = dim
        if op == "mul" and isinstance(a, int) and a > 0:
            _learn(f, b, f.b.sdiv(extent, I64(a)), dims)
        elif op == "mul" and isinstance(b, int) and b > 0:
            _learn(f, a, f.b.sdiv(extent, I64(b)), dims)
        elif op == "add" and isinstance(b, int):
            _learn(f, a, f.b.sub(extent, I64(b)), dims)


def _check_shape(f: Body, tensor: Tensor, kind: str, value: Value, dims: dict[str, Value]) -> None:
    for axis, dim in enumerate(tensor.shape):
        found, wanted = _extent(f, value, axis), _value(f, dim, dims)
        with f.when(f.b.icmp_signed("!=", found, wanted)):
            label = f"{kind} {tensor.name}".replace("%", "%%")
            text = f"{label}: dimension {axis} is %lld, not %lld"
            set_error(f, text, found, wanted)
            f.ret(I32(_REFUSED))


def _value(f: Body, dim: Dim, dims: dict[str, Value]) -> Value:
    if isinstance(dim, int):
        return I64(dim)
    if isinstance(dim, str):
        return dims[dim]
    op, a, b = dim[0], _value(f, dim[1], dims), _value(f, dim[2], dims)
    if op in ("min", "max"):
        return f.b.select(f.b.icmp_signed("<" if op == "min" else ">", a, b), a, b)
    if op in ("floordiv", "floormod"):
        return _floored(f, op, a, b)
    return {"add": f.b.add, "sub": f.b.sub, "mul": f.b.mul}[op](a, b)


def _floored(f: Body, op: str, a: Value, b: Value) -> Value:
    """Floor division or its remainder; 0 where the divisor is 0."""
    is_zero = f.b.icmp_signed("==", b, I64(0))
    divisor = f.b.select(is_zero, I64(1), b)
    rest = f.b.srem(a, divisor)
    other_signs = f.b.icmp_signed("<", f.b.xor(a, divisor), I64(0))
    goes_down = f.b.and_(f.b.icmp_signed("!=", rest, I64(0)), other_signs)
    if op == "floormod":
        found = f.b.select(goes_down, f.b.add(rest, divisor), rest)
    else:
        found = f.b.sub(f.b.sdiv(a, divisor), f.b.zext(goes_down, I64))
    return f.b.select(is_zero, I64(0), found)


def _run_tvm_ffi(library: Library, model: Interface) -> None:
    """int __tvm_ffi_NAME_run(void *handle, const TVMFFIAny *args, int32_t count, TVMFFIAny *out)

    tvm_ffi's calling convention; the arguments are the inputs, then the outputs. Its library is
    referenced weakly: it only has to be there if tvm_ffi loads this one.
    """
    raising = library.declare("TVMFFIErrorSetRaisedFromCStr", ir.VoidType(), [PTR, PTR])
    raising.linkage = "extern_weak"
    name = f"__tvm_ffi_{model.prefix}_run"
    f = library.define(name, I32, [PTR, PTR, I32, PTR], exported=True)
    _, args, count, _ = f.args
    total = len(model.inputs) + len(model.outputs)
    status = f.scratch(8)
    f.put(I32(_REFUSED), status, Field(0, I32))
    with f.b.if_else(f.b.icmp_signed("==", count, I32(total))) as (fits, otherwise):
        with fits:
            tensors = f.scratch(8 * max(1, total))
            code = _collect(f, args, tensors, total)
            f.put(code, status, Field(0, I32))
            with f.when(f.b.icmp_signed("==", code, I32(0))):
                outputs = f.at(tensors, Field(8 * len(model.inputs)))
                done = f.call(f"{model.prefix}_run_dlpack", tensors, outputs)
                f.put(done, status, Field(0, I32))
        with otherwise:
            taken = ", ".join(t.name for t in (*model.inputs, *model.outputs))
            text = f"it takes {total} tensors: {taken}".replace("%", "%%")
            set_error(f, text)
    failed = f.b.icmp_signed("!=", f.get(status, Field(0, I32)), I32(0))
    with f.when(failed):
        with f.when(f.b.not_(f.is_null(f.b.bitcast(raising, PTR)))):
            kind = f.b.bitcast(library.text("tw_error_kind", "ValueError"), PTR)
            f.b.call(raising, [kind, f.at(variable(library, ERROR), Field(0))])
        f.ret(I32(-1))
    f.ret(I32(0))


def _collect(f: Body, args: Value, tensors: Value, total: int) -> Value:
    """Collect the tensors among the arguments in an array; not 0 where one is no tensor."""
    bad: Value = I32(0)
    for k in range(total):
        kind, value = f.get(args, Field(16 * k, I32)), f.get(args, Field(16 * k + 8, PTR))
        is_object = f.b.icmp_signed("==", kind, I32(_TENSOR_OBJECT))
        is_pointer = f.b.icmp_signed("==", kind, I32(_TENSOR_POINTER))
        inside = f.at(value, Field(_OBJECT_HEADER))
        f.put(f.b.select(is_object, inside, value), tensors, Field(8 * k, PTR))
        bad = f.b.select(f.b.or_(is_object, is_pointer), bad, I32(_REFUSED))
    with f.when(f.b.icmp_signed("!=", bad, I32(0))):
        set_error(f, "an argument is no tensor")
    return bad
