"""`@script`: algorithms as loop functions, written in a small typed subset of Python.

    @script
    def prefix_sum(A: "f32[n]", B: "f32[n]"):
        total = 0.0
        for i in range(A.shape[0]):
            total += A[i]
            B[i] = total

The function is parsed, never run. It may use: buffers (`A: "f32[n, 4]"`, where an undefined name is
a symbolic dimension; linters prefer the spelling `A=f32["n", 4]`, which means the same) and scalars
(`alpha: "f32"`, `alpha=f32`) as parameters; scalar variables; local buffers
(`T = alloc(f32[16])`); `for` over `range`, `parallel`, `vectorized` and `unrolled`; `while`, `if`,
`break`, `continue`, `assert`; the intrinsics; numbers, types and tuples from the code around it;
and calls of other loop functions, which are inlined. Results go to buffers. The text form of the
loop IR (`ir.text.printer`), blocks included, is part of the language.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, overload

from tilewright.ir import Function, Source, verify
from tilewright.support.errors import UserError
from tilewright.tensor.script_reader import ScriptReader

PythonFunction = Callable[..., Any]


@overload
def script(function: PythonFunction, /) -> Function: ...


@overload
def script(
    *, name: str | None = None, attrs: Mapping[str, Any] | None = None
) -> Callable[[PythonFunction], Function]: ...


def script(
    function: PythonFunction | None = None,
    /,
    *,
    name: str | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Function | Callable[[PythonFunction], Function]:
    """Turn a Python function into a loop function."""
    around = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]

    def read(f: PythonFunction) -> Function:
        found = _read(f, around)
        return Function(name or found.name, found.params, found.body, dict(attrs or {}))

    return read if function is None else read(function)


def _read(function: PythonFunction, around: Mapping[str, Any]) -> Function:
    source = _source(function)
    tree = source.parse()
    definition = tree.body[0] if tree.body else None
    if not isinstance(definition, ast.FunctionDef):
        raise UserError(f"{source.file}: @script takes a plain function")
    try:
        result = ScriptReader(source, _captured(function, around)).function(definition)
    except RecursionError:
        raise source.too_deep() from None
    verify(result)
    return result


def _source(function: PythonFunction) -> Source:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise UserError(
            f"cannot read the source of {getattr(function, '__name__', function)!s}",
            reason="Python does not know where it stands",
            remedy="define it in a file",
        ) from None
    file = inspect.getsourcefile(function) or "<unknown>"
    return Source(textwrap.dedent("".join(lines)), file, first)


def _captured(function: PythonFunction, around: Mapping[str, Any]) -> dict[str, Any]:
    """The names that the function can use; annotations can use those of the function around it."""
    found = {**function.__globals__, **around}
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet: the function itself, when it calls itself
            found.pop(name, None)
    return found
