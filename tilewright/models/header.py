"""The C header of an exported library."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen import Interface
from tilewright.ir import DType
from tilewright.runtime import TensorSpec

_C_TYPES = {"float32": "float", "float64": "double", "bool": "uint8_t"}

_DLPACK = """\
#if !defined(DLPACK_DLPACK_H_) && !defined(TILEWRIGHT_DLTENSOR)
#define TILEWRIGHT_DLTENSOR
/* A tensor, as DLPack describes it; include dlpack.h before this file to use its own. */
typedef struct {
  void *data;
  struct { int32_t device_type, device_id; } device; /* device_type 1: the CPU's memory */
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape;
  int64_t *strides; /* NULL: without gaps */
  uint64_t byte_offset;
} DLTensor;
#endif
"""


def header(model: Interface, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """The declarations of a library, with comments on parameters and results."""
    name = model.prefix
    parts = [
        f"/* {name}: a model compiled by Tilewright. Needs libc and pthreads. */",
        f"#ifndef {name.upper()}_H\n#define {name.upper()}_H\n",
        "#include <stdint.h>\n",
        _DLPACK if model.takes_dlpack else "",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _tensors(name, "input", inputs),
        _tensors(name, "output", outputs),
        _denormals(model),
        _functions(model),
        "#ifdef __cplusplus\n}\n#endif\n",
        "#endif",
    ]
    return "\n".join(p for p in parts if p) + "\n"


def _denormals(model: Interface) -> str:
    flushes = model.denormals == "flush"
    treated = "taken for zeros" if flushes else "computed with"
    return (
        f"/* Numbers below the least normal one are {treated}, in all threads that run the model.\n"
        "   After a run, the caller's floating-point state is as it was before. */\n"
        f"#define {model.prefix.upper()}_FLUSHES_DENORMALS {int(flushes)}\n"
    )


def _tensors(name: str, kind: str, specs: Sequence[TensorSpec]) -> str:
    lines = [f"#define {name.upper()}_{kind.upper()}S {len(specs)}"]
    for k, spec in enumerate(specs):
        lines.append(
            f"/* {kind}s[{k}]: {safe_text(str(spec))}, elements of type {c_type(spec.dtype)} */"
        )
    return "\n".join(lines) + "\n"


def c_type(dtype: DType) -> str:
    """The C type of elements; unsigned integers of the same size for those that C lacks."""
    if dtype.name in _C_TYPES:
        return _C_TYPES[dtype.name]
    if dtype.kind in ("int", "uint") and dtype.bits >= 8:
        return f"{dtype.name}_t"
    return "uint16_t" if dtype.bits == 16 else "uint8_t"


def safe_text(text: str) -> str:
    """Text that is safe in a C comment: it neither ends nor begins one, nor hides what follows."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("*/", "* /").replace("/*", "/ *")


def _functions(model: Interface) -> str:
    name = model.prefix
    takes = ["const void *const *inputs", "void **outputs"]
    lines = ["Runs the model on tensors without gaps. 0: all is well; else see NAME_error."]
    if model.dims:
        takes.append("const int64_t *dims")
        lines.append(f"dims: the sizes {', '.join(model.dims)}, in this order.")
    if model.records:
        names = ", ".join(model.outputs[k].name for k in model.records)
        takes.append("int64_t *shapes")
        lines.append(f"The run makes {names}, whose sizes depend on the data: it puts memory into")
        lines.append("outputs for the caller to free(), and all their dimensions into shapes.")
    text = [
        _comment(lines, name),
        f"int32_t {name}_run({', '.join(takes)});\n",
    ]
    if model.takes_dlpack:
        text.append("/* The same on DLPack tensors, whose types and shapes are checked. */")
        text.append(
            f"int32_t {name}_run_dlpack(DLTensor *const *inputs, DLTensor *const *outputs);\n"
        )
    text += [
        "/* Uses this many threads from now on; 0: one for each processor, as without a call.\n"
        "   Not while a run is under way. */",
        f"void {name}_init(int32_t num_threads);\n",
        "/* Ends the threads and frees memory; another run starts them anew. */",
        f"void {name}_free(void);\n",
        "/* What the last run of this thread that failed had to say. */",
        f"const char *{name}_error(void);\n",
    ]
    return "\n".join(text)


def _comment(lines: Sequence[str], name: str) -> str:
    body = "\n   ".join(safe_text(line).replace("NAME", name) for line in lines)
    return f"/* {body} */"
