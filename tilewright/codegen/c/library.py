"""A model as one C file that needs nothing but libc and libm: kernels, weights, and functions.

Everything but the functions that the header declares is private to the file. Parallel loops run on
OpenMP's threads if the compiler supports OpenMP, else in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from tilewright.codegen.c.types import function_name
from tilewright.codegen.interface import Interface
from tilewright.support.memory import ALIGNMENT

#: Bytes of constants per line.
_LINE: Final = 32
_MAX_ERROR: Final = 512

_FIRST: Final = """\
/* {prefix}: a model compiled by Tilewright to portable C99. Needs libc and libm.
   Compile it with -ffp-contract=off, and without -ffast-math; -fopenmp gives it threads. */
#define TW_KERNEL static
#define TW_POOL static
#define TW_NAMED(name)
"""

_POOL: Final = """\
static int32_t tw_threads = 0;

static void tw_pool_run(
    void *pool, void (*body)(void *, int64_t, int64_t), void *own, int64_t count) {
  (void)pool;
#ifdef _OPENMP
  const int64_t most = tw_threads > 0 ? tw_threads : omp_get_max_threads();
  const int64_t parts = most < count ? most : count;
#pragma omp parallel for num_threads((int)(parts > 0 ? parts : 1))
  for (int64_t k = 0; k < parts; ++k) body(own, count * k / parts, count * (k + 1) / parts);
#else
  body(own, 0, count);
#endif
}
"""

_ERRORS: Final = """\
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define TW_THREAD _Thread_local
#elif defined(__GNUC__)
#define TW_THREAD __thread
#else
#define TW_THREAD
#endif
static TW_THREAD char tw_error[{size}];

/* A message with its numbers: {{}} is the next one, {{0}} the first. */
static void tw_explain(int32_t code, const uint64_t *record) {{
  const char *text = tw_messages[code - 1];
  size_t at = (size_t)snprintf(tw_error, sizeof tw_error, "{prefix} stopped");
  int next = 1;
  if (record[5] >= 1 && record[5] <= {origins}) {{
    const char *origin = tw_origins[record[5] - 1];
    at += (size_t)snprintf(tw_error + at, sizeof tw_error - at, " at %.200s", origin);
  }}
  at += (size_t)snprintf(tw_error + at, sizeof tw_error - at, ": ");
  for (; *text && at + 24 < sizeof tw_error; ++text) {{
    if (*text == '{{' && text[1] != '{{') {{
      const int number = text[1] == '}}' ? next++ : text[1] - '0' + 1;
      at += (size_t)snprintf(tw_error + at, 24, "%lld", (long long)record[number < 5 ? number : 1]);
      while (*text != '}}') ++text;
    }} else {{
      if ((*text == '{{' || *text == '}}') && text[1] == *text) ++text;
      tw_error[at++] = *text;
    }}
  }}
  tw_error[at] = 0;
}}
"""

_RUN: Final = """\
int32_t {prefix}_run({takes}) {{
  uint64_t words[{count}] = {{0}}, record[{record}] = {{0}}, error[6] = {{0}};
  uint64_t constants[{constants} + 1];
{fill}
  const int64_t size = {program}_workspace(words);
  char *const block = malloc((size_t)size + {alignment});
  if (block == NULL) {{
    snprintf(tw_error, sizeof tw_error, "{prefix} stopped: out of memory, %lld bytes are needed",
             (long long)size);
    return -1;
  }}
  words[{last}] = ((uint64_t)(uintptr_t)block + {alignment} - 1) & ~(uint64_t)({alignment} - 1);
  words[{last} + 1] = (uint64_t)(uintptr_t)error;
  const int32_t code = {program}_entry(words);
  free(block);
  if (code != 0) {{
    tw_explain(code, error);
    return code;
  }}
{give}
  return 0;
}}

void {prefix}_init(int32_t num_threads) {{
  tw_threads = num_threads;
}}

void {prefix}_free(void) {{
}}

const char *{prefix}_error(void) {{
  return tw_error;
}}
"""


def library_source(model: Interface, code: str, constants: Sequence[Any]) -> Iterator[str]:
    """The parts of the file; `code` is that of the program and its kernels."""
    yield _FIRST.format(prefix=model.prefix)
    yield "#include <stdio.h>\n#ifdef _OPENMP\n#include <omp.h>\n#endif\n"
    yield code
    yield _POOL if "tw_pool_run(" in code else "static int32_t tw_threads = 0;\n"
    yield _table("tw_messages", model.messages)
    yield _table("tw_origins", model.origins)
    yield _ERRORS.format(size=_MAX_ERROR, prefix=model.prefix, origins=len(model.origins))
    for k, array in enumerate(constants):
        yield from _constant(k, array)
    yield _run(model, len(constants))


def _table(name: str, texts: Sequence[str]) -> str:
    rows = "".join(f"  {_quoted(t)},\n" for t in texts)
    return f"static const char *const {name}[] = {{\n{rows}  NULL,\n}};\n"


def _quoted(text: str) -> str:
    escaped = "".join(
        f"\\{c}" if c in '"\\' else c if " " <= c <= "~" and c != "?" else _escaped(c) for c in text
    )
    return f'"{escaped}"'


def _escaped(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode())


def _constant(number: int, array: Any) -> Iterator[str]:
    """An array as unsigned integers of its elements' size: the same on every machine."""
    size = array.dtype.itemsize
    size = size if size in (1, 2, 4, 8) else 1
    words = np.ascontiguousarray(array).reshape(-1).view(f"u{size}")
    yield f"static const uint{8 * size}_t tw_constant_{number}[{max(1, len(words))}] = {{\n"
    step = _LINE // size
    for at in range(0, len(words), step):
        yield ",".join(f"{w:#x}" for w in words[at : at + step].tolist()) + ",\n"
    yield "0\n};\n" if not len(words) else "};\n"


def _run(model: Interface, constants: int) -> str:
    takes = ["const void *const *inputs", "void **outputs"]
    takes += ["const int64_t *dims"] if model.dims else []
    takes += ["int64_t *shapes"] if model.records else []
    fill = [f"constants[{k}] = (uint64_t)(uintptr_t)tw_constant_{k};" for k in range(constants)]
    words = [f"(uint64_t)(uintptr_t)inputs[{k}]" for k in range(len(model.inputs))]
    words += [f"(uint64_t)(uintptr_t)outputs[{k}]" for k in model.direct]
    words += ["(uint64_t)(uintptr_t)constants", "(uint64_t)(uintptr_t)record"]
    words += [f"(uint64_t)dims[{k}]" for k in range(len(model.dims))]
    fill += [f"words[{k}] = {word};" for k, word in enumerate(words)]
    give = list(_handed_over(model)) or ["(void)outputs;"]
    return _RUN.format(
        alignment=ALIGNMENT,
        prefix=model.prefix,
        takes=", ".join(takes),
        program=function_name(model.program),
        count=len(words) + 3,
        # The word before it is the thread pool's, which is left null.
        last=len(words) + 1,
        record=1 + sum(1 + len(t.shape) for t in model.outputs),
        constants=constants,
        fill="\n".join(f"  {line}" for line in fill),
        give="\n".join(f"  {line}" for line in give),
    )


def _handed_over(model: Interface) -> Iterator[str]:
    """Return outputs whose sizes the run computes: their memory, and their shapes, in order."""
    at = 0
    for k, place in model.records.items():
        yield f"outputs[{k}] = (void *)(uintptr_t)record[{place}];"
        for axis in range(len(model.outputs[k].shape)):
            yield f"shapes[{at}] = (int64_t)record[{place + 1 + axis}];"
            at += 1
