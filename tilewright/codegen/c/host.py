"""What host programs do besides arithmetic: call kernels, copy memory, hold blocks and lists.

The counterpart of `codegen.llvm.host`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.codegen.c.frame import CFrame
from tilewright.codegen.c.lists import EMPTY_BYTES, LISTS
from tilewright.codegen.c.types import c_type, function_name
from tilewright.codegen.convention import (
    ERROR,
    EVENT_NUMBERS,
    MAX_MESSAGE_VALUES,
    OUT_OF_MEMORY,
    POOL,
)
from tilewright.codegen.sizes import saturated
from tilewright.ir import Call, Const, Expr, Load
from tilewright.support.dtype import index

_ADDRESS = "uint64"


def emit_kernel_call(frame: CFrame, node: Call) -> None:
    """Call the kernel that `node` names; leave the function where it fails."""
    name = node.name.removeprefix("kernel.")
    *operands, workspace = node.args
    called, sizes = frame.shared.get(name, (name, ()))
    kinds = ["void *" if a.dtype.name == _ADDRESS else c_type(a.dtype) for a in operands]
    own = function_name(called)
    params = ", ".join([*(c_type(index) for _ in sizes), *kinds, "const uint64_t *"])
    frame.unit.declare(f'TW_KERNEL int32_t {own}({params}) TW_NAMED("{called}");')
    with frame.block(""):
        args = [_operand(frame, a) for a in operands]
        env = f"env[{POOL}], {frame.value(workspace)}, env[{ERROR}]"
        frame.line(f"const uint64_t calls_env[3] = {{{env}}};")
        if frame.profiled:
            frame.line("const int64_t began = tw_now();")
        call = f"{own}({', '.join([*map(str, sizes), *args, 'calls_env'])})"
        frame.line(f"const int32_t failed = {call};")
        if frame.profiled:
            _record(frame, operands, args)
        frame.calls += 1
        _leave_if_kernel_failed(frame, frame.first_messages.get(name))


def _operand(frame: CFrame, expr: Expr) -> str:
    """The value of an operand; addresses become pointers."""
    if expr.dtype.name != _ADDRESS:
        return frame.named(expr.dtype, frame.value(expr), "arg")
    return f"(void *)(uintptr_t){frame.value(expr)}"


def _record(frame: CFrame, operands: Sequence[Expr], args: Sequence[str]) -> None:
    """Record the start and end of a call, and its numbers; those that are no integers as zero."""
    numbers = [
        f"(int64_t){text}" if e.dtype.is_integer else "0"
        for e, text in zip(operands, args, strict=True)
        if e.dtype.name != _ADDRESS
    ][:EVENT_NUMBERS]
    frame.line(f"const int64_t numbers[] = {{{', '.join([*numbers, '0'])}}};")
    frame.line(f"tw_record({frame.calls}, began, numbers, {len(numbers)});")


def _leave_if_kernel_failed(frame: CFrame, first: int | None) -> None:
    """Add `first`, the offset of the kernel's messages, to its error code."""
    if first is None:
        frame.line("(void)failed;")
        return
    with frame.block("if (failed != 0)"):
        frame.line(f"uint64_t *const error = (uint64_t *)(uintptr_t)env[{ERROR}];")
        frame.line(f"error[0] = (uint64_t)(failed + {first});")
        frame.line(f"error[{1 + MAX_MESSAGE_VALUES}] = {frame.calls};")
        frame.leave(f"failed + {first}")


# ---- memory -------------------------------------------------------------------------------------


def _copy_memory(frame: CFrame, node: Call) -> None:
    to, source = (_operand(frame, a) for a in node.args[:2])
    size = frame.named(node.args[2].dtype, frame.value(node.args[2]), "bytes")
    # With nothing to copy, the addresses may be null.
    frame.line(f"if ({size} > 0) memcpy({to}, {source}, (size_t){size});")


def _take(frame: CFrame, node: Call) -> None:
    slot = frame.heap_block(_number(node))
    frame.line(f"free({slot});")
    frame.line(f"{slot} = NULL;")
    size = _size(frame, node.args[1])
    frame.line(f"{slot} = malloc((size_t){size});")
    _require_memory(frame, f"{slot} == NULL", size)


def _grow(frame: CFrame, node: Call) -> None:
    slot, size = frame.heap_block(_number(node)), _size(frame, node.args[1])
    frame.line(f"void *const grown = realloc({slot}, (size_t){size});")
    _require_memory(frame, "grown == NULL", size)
    frame.line(f"{slot} = grown;")


def _size(frame: CFrame, expr: Expr) -> str:
    """A size in bytes as libc's `size_t`; at least 1, since malloc(0) may return null."""
    size = frame.named(expr.dtype, frame.value(saturated(expr)), "bytes")
    return frame.named(expr.dtype, f"{size} < 1 ? 1 : {size}", "bytes")


def _require_memory(frame: CFrame, missing: str, size: str) -> None:
    with frame.block(f"if ({missing})"):
        frame.fail(OUT_OF_MEMORY, [size])


def _release(frame: CFrame, node: Call) -> None:
    slot = frame.heap_block(_number(node))
    frame.line(f"free({slot});")
    frame.line(f"{slot} = NULL;")


def _swap(frame: CFrame, node: Call) -> None:
    a, b = (frame.heap_block(_number(node, k)) for k in range(2))
    frame.line(f"void *const first = {a};")
    frame.line(f"{a} = {b};")
    frame.line(f"{b} = first;")


def _number(node: Call, operand: int = 0) -> int:
    number = node.args[operand]
    assert isinstance(number, Const)
    return int(number.value)


# ---- lists --------------------------------------------------------------------------------------


def _list(frame: CFrame, node: Call, operand: int = 0) -> str:
    frame.unit.declare(LISTS)
    return frame.list_slot(_number(node, operand))


def _list_empty(frame: CFrame, node: Call) -> None:
    slot = _list(frame, node)
    frame.line("uint64_t *const made = tw_list_empty();")
    _require_memory(frame, "made == NULL", str(EMPTY_BYTES))
    _replace_list(frame, slot, "made")


def _list_insert(frame: CFrame, node: Call) -> None:
    slot, position = _list(frame, node), frame.value(node.args[1])
    size = frame.named(node.args[2].dtype, frame.value(saturated(node.args[2])), "bytes")
    dims = [frame.value(d) for d in node.args[3:]]
    call = f"tw_list_insert(&{slot}, {position}, {size}, {len(dims)})"
    frame.line(f"uint64_t *const item = {call};")
    _require_memory(frame, "item == NULL", size)
    for axis, dim in enumerate(dims):
        frame.line(f"item[{3 + axis}] = (uint64_t){dim};")


def _list_erase(frame: CFrame, node: Call) -> None:
    slot = _list(frame, node)
    erased = f"tw_list_erase(&{slot}, {frame.value(node.args[1])})"
    # Out of memory for a copy of the list; the reported size does not matter, as lists are small.
    _require_memory(frame, f"!{erased}", str(EMPTY_BYTES))


def _list_share(frame: CFrame, node: Call) -> None:
    slot, source = _list(frame, node), _list(frame, node, 1)
    _replace_list(frame, slot, f"tw_list_refer({source})")


def _list_adopt(frame: CFrame, node: Call) -> None:
    given = f"(uint64_t *)(uintptr_t){frame.value(node.args[1])}"
    _replace_list(frame, _list(frame, node), f"tw_list_refer({given})")


def _list_swap(frame: CFrame, node: Call) -> None:
    a, b = _list(frame, node), _list(frame, node, 1)
    frame.line(f"uint64_t *const first = {a};")
    frame.line(f"{a} = {b};")
    frame.line(f"{b} = first;")


def _list_release(frame: CFrame, node: Call) -> None:
    _replace_list(frame, _list(frame, node), "NULL")


def _replace_list(frame: CFrame, slot: str, list_: str) -> None:
    """Put a list into a slot, which takes ownership of the reference."""
    frame.line(f"uint64_t *const next = {list_};")
    frame.line(f"tw_list_release({slot});")
    frame.line(f"{slot} = next;")


HOST: dict[str, Callable[[CFrame, Call], None]] = {
    "copy_memory": _copy_memory,
    "heap_take": _take,
    "heap_grow": _grow,
    "heap_release": _release,
    "heap_swap": _swap,
    "list_empty": _list_empty,
    "list_insert": _list_insert,
    "list_erase": _list_erase,
    "list_share": _list_share,
    "list_adopt": _list_adopt,
    "list_swap": _list_swap,
    "list_release": _list_release,
}


# ---- for expressions ----------------------------------------------------------------------------


def _address_of(frame: CFrame, node: Call, args: Sequence[str]) -> str:
    load = node.args[0]
    assert isinstance(load, Load)
    place = f"(char *){frame.buffer(load.buffer)} + {load.buffer.dtype.itemsize} * ({args[0]})"
    return f"(uint64_t)(uintptr_t)({place})"


def _heap_block(frame: CFrame, node: Call, args: Sequence[str]) -> str:
    del args
    return f"(uint64_t)(uintptr_t){frame.heap_block(_number(node))}"


def _heap_hand_over(frame: CFrame, node: Call, args: Sequence[str]) -> str:
    slot = frame.heap_block(_number(node))
    return _handed_over(frame, slot, _heap_block(frame, node, args))


def _list_hand_over(frame: CFrame, node: Call, args: Sequence[str]) -> str:
    del args
    slot = _list(frame, node)
    return _handed_over(frame, slot, f"(uint64_t)(uintptr_t){slot}")


def _handed_over(frame: CFrame, slot: str, address: str) -> str:
    name = frame.names.new("handed")
    frame.line(f"const uint64_t {name} = {address};")
    frame.line(f"{slot} = NULL;")
    return name


def _of_item(word: int | None) -> Callable[[CFrame, Call, Sequence[str]], str]:
    """A word of a list's item; a dimension where no word is given."""

    def expression(frame: CFrame, node: Call, args: Sequence[str]) -> str:
        item = f"((uint64_t *)(uintptr_t){_list(frame, node)}[3 + {args[1]}])"
        kind = c_type(node.dtype)
        return f"({kind}){item}[{word if word is not None else f'3 + {args[2]}'}]"

    return expression


EXPRESSIONS: dict[str, Callable[[CFrame, Call, Sequence[str]], str]] = {
    "address_of": _address_of,
    "heap_block": _heap_block,
    "heap_hand_over": _heap_hand_over,
    "list_exists": lambda frame, node, _: f"({_list(frame, node)} != NULL)",
    "list_length": lambda frame, node, _: f"(int64_t){_list(frame, node)}[1]",
    "list_item": _of_item(1),
    "list_rank": _of_item(2),
    "list_extent": _of_item(None),
    "list_hand_over": _list_hand_over,
    "int64_at": lambda _frame, _node, args: f"*(const int64_t *)(uintptr_t){args[0]}",
}
