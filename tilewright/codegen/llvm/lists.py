"""Lists of tensors: sequences and optionals at run time.

    list    references; number of items; capacity; the address of each item
    item    references; the address of its elements; its rank; its dimensions; elements of its own

All fields are words of eight bytes. A null list is an optional without a value. Lists and items are
reference-counted and copied on write: a list is changed in place only if it has one reference, and
a copy shares the items. Outside of kernels a program is single-threaded, so the counts need no
atomics. Lists that the caller passes to a program hold a reference of the caller's, and are never
freed here.

The functions below become part of the program that uses them; they call nothing but libc.
`NAME.release` is for the caller of the program `NAME`, who receives lists from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.functions import I1, I64, PTR, VOID, Body, Field, Library, Value, ir
from tilewright.ir import Call, Const
from tilewright.support.memory import ALIGNMENT

_WORD: Final = 8
_REFERENCES: Final = Field(0, I64)
_COUNT, _CAPACITY = Field(8, I64), Field(16, I64)
_ITEMS: Final = Field(24, PTR)
#: Bytes of a list without items.
EMPTY_BYTES: Final = _ITEMS.offset
_DATA, _RANK, _DIMS = Field(8, I64), Field(16, I64), Field(24, I64)


def list_function(cx: Context, name: str) -> Any:
    """The function `release`, `empty`, `insert` or `erase` of this module."""
    full = _release_name(cx) if name == "release" else f"list.{name}"
    if full not in cx.module.globals:
        _Functions(cx)
    return cx.module.globals[full]


def _release_name(cx: Context) -> str:
    return f"{cx.module.name}.release"


class _Functions:
    """Adds the functions to a module."""

    def __init__(self, cx: Context) -> None:
        self._library = Library(cx.module.name, cx.target.triple, cx.module)
        self._size = ir.IntType(cx.target.pointer_bits)
        self._release = _release_name(cx)
        # Callees come before their callers.
        for emit in (
            self._drop,
            self._releases,
            self._empty,
            self._unique,
            self._insert,
            self._erase,
        ):
            emit()

    def _drop(self) -> None:
        """void drop(item): decrements its reference count."""
        f = self._library.define("list.drop", VOID, [PTR])
        (item,) = f.args
        left = _count(f, item, -1)
        with f.when(f.b.icmp_signed("==", left, I64(0))):
            self._free(f, item)
        f.ret()

    def _releases(self) -> None:
        """void NAME.release(list): decrements its reference count; null is allowed."""
        f = self._library.define(self._release, VOID, [PTR], exported=True)
        (list_,) = f.args
        with f.when(f.is_null(list_)):
            f.ret()
        left = _count(f, list_, -1)
        with f.when(f.b.icmp_signed("!=", left, I64(0))):
            f.ret()
        with f.loop_from(I64(0), f.get(list_, _COUNT)) as (index, _):
            f.call("list.drop", _item(f, list_, index))
        self._free(f, list_)
        f.ret()

    def _empty(self) -> None:
        """list empty(): a new one without items; null: no memory."""
        f = self._library.define("list.empty", PTR, [])
        made = self._malloc(f, I64(EMPTY_BYTES))
        with f.when(f.b.not_(f.is_null(made))):
            for value, field in ((1, _REFERENCES), (0, _COUNT), (0, _CAPACITY)):
                f.put(I64(value), made, field)
        f.ret(made)

    def _unique(self) -> None:
        """list unique(list, capacity): a list of this capacity with a single reference, copied if
        necessary; null: no memory."""
        f = self._library.define("list.unique", PTR, [PTR, I64])
        list_, capacity = f.args
        is_unique = f.b.icmp_signed("==", f.get(list_, _REFERENCES), I64(1))
        fits = f.b.icmp_signed("<=", capacity, f.get(list_, _CAPACITY))
        with f.when(f.b.and_(is_unique, fits)):
            f.ret(list_)
        more = f.b.add(capacity, f.b.add(f.b.lshr(capacity, I64(1)), I64(4)))
        bytes_ = f.b.add(f.b.mul(more, I64(_WORD)), I64(_ITEMS.offset))
        with f.when(is_unique):
            grown = self._resized(f, list_, bytes_)
            with f.when(f.b.not_(f.is_null(grown))):
                f.put(more, grown, _CAPACITY)
            f.ret(grown)
        made = self._malloc(f, bytes_)
        with f.when(f.is_null(made)):
            f.ret(made)
        count = f.get(list_, _COUNT)
        for value, field in ((I64(1), _REFERENCES), (count, _COUNT), (more, _CAPACITY)):
            f.put(value, made, field)
        with f.loop_from(I64(0), count) as (index, _):
            item = _item(f, list_, index)
            _count(f, item, 1)
            f.b.store(item, f.at(made, _ITEMS, index, _WORD))
        _count(f, list_, -1)
        f.ret(made)

    def _insert(self) -> None:
        """item insert(slot, position, bytes, rank): memory for a new item; null: no memory."""
        f = self._library.define("list.insert", PTR, [PTR, I64, I64, I64])
        slot, position, bytes_, rank = f.args
        header = f.b.add(f.b.mul(rank, I64(_WORD)), I64(_DIMS.offset + ALIGNMENT))
        item = self._malloc(f, f.b.add(header, bytes_))
        with f.when(f.is_null(item)):
            f.ret(item)
        old = f.b.load(slot, typ=PTR)
        count = f.get(old, _COUNT)
        list_ = f.call("list.unique", old, f.b.add(count, I64(1)))
        with f.when(f.is_null(list_)):
            self._free(f, item)
            f.ret(list_)
        f.b.store(list_, slot)
        self._shift(f, list_, position, f.b.add(position, I64(1)), f.b.sub(count, position))
        f.b.store(item, f.at(list_, _ITEMS, position, _WORD))
        f.put(f.b.add(count, I64(1)), list_, _COUNT)
        end = f.b.add(f.b.ptrtoint(item, I64), f.b.sub(header, I64(1)))
        f.put(I64(1), item, _REFERENCES)
        f.put(f.b.and_(end, I64(-ALIGNMENT)), item, _DATA)
        f.put(rank, item, _RANK)
        f.ret(item)

    def _erase(self) -> None:
        """bool erase(slot, position): false where there is no memory."""
        f = self._library.define("list.erase", I1, [PTR, I64])
        slot, position = f.args
        old = f.b.load(slot, typ=PTR)
        count = f.get(old, _COUNT)
        list_ = f.call("list.unique", old, count)
        with f.when(f.is_null(list_)):
            f.ret(I1(False))
        f.b.store(list_, slot)
        f.call("list.drop", _item(f, list_, position))
        left = f.b.sub(count, I64(1))
        self._shift(f, list_, f.b.add(position, I64(1)), position, f.b.sub(left, position))
        f.put(left, list_, _COUNT)
        f.ret(I1(True))

    # ---- libc -----------------------------------------------------------------------------------

    def _shift(self, f: Body, list_: Value, start: Value, to: Value, count: Value) -> None:
        """Move the addresses of items to another index."""
        source, target = (f.at(list_, _ITEMS, k, _WORD) for k in (start, to))
        move = self._library.declare("memmove", PTR, [PTR, PTR, self._size])
        f.b.call(move, [target, source, self._sized(f, f.b.mul(count, I64(_WORD)))])

    def _malloc(self, f: Body, bytes_: Value) -> Value:
        malloc = self._library.declare("malloc", PTR, [self._size])
        return f.b.call(malloc, [self._sized(f, bytes_)])

    def _resized(self, f: Body, block: Value, bytes_: Value) -> Value:
        realloc = self._library.declare("realloc", PTR, [PTR, self._size])
        return f.b.call(realloc, [block, self._sized(f, bytes_)])

    def _free(self, f: Body, block: Value) -> None:
        f.b.call(self._library.declare("free", VOID, [PTR]), [block])

    def _sized(self, f: Body, bytes_: Value) -> Value:
        return bytes_ if self._size == I64 else f.b.trunc(bytes_, self._size)


def _count(f: Body, owner: Value, change: int) -> Value:
    """Change the reference count of a list or an item; returns the new one."""
    now = f.b.add(f.get(owner, _REFERENCES), I64(change))
    f.put(now, owner, _REFERENCES)
    return now


def _item(f: Body, list_: Value, index: Value) -> Value:
    return f.b.load(f.at(list_, _ITEMS, index, _WORD), typ=PTR)


# ---- for expressions ----------------------------------------------------------------------------


def list_slot(cx: Context, node: Call, operand: int = 0) -> Value:
    """The stack slot that holds the address of a numbered list."""
    number = node.args[operand]
    assert isinstance(number, Const)
    return cx.lists[int(number.value)]


def word_at(cx: Context, base: Value, field: Field, index: Value | None = None) -> Value:
    """The address of a word of a list or an item."""
    offset: Value = I64(field.offset)
    if index is not None:
        offset = cx.builder.add(offset, cx.builder.mul(index, I64(_WORD)))
    return cx.builder.gep(base, [offset], source_etype=ir.IntType(8))


def store_dims(cx: Context, item: Value, dims: list[Value]) -> None:
    """Store the dimensions of an item."""
    for axis, dim in enumerate(dims):
        cx.builder.store(dim, word_at(cx, item, _DIMS, I64(axis)))


def refer(cx: Context, list_: Value) -> None:
    """Increment the reference count of a list, which may be null."""
    builder = cx.builder
    with builder.if_then(builder.icmp_unsigned("!=", list_, PTR(None))):
        place = word_at(cx, list_, _REFERENCES)
        builder.store(builder.add(builder.load(place, typ=I64), I64(1)), place)


def _list_of(cx: Context, node: Call) -> Value:
    return cx.builder.load(list_slot(cx, node), typ=PTR)


def _exists(cx: Context, node: Call, args: list[Value]) -> Value:
    del args
    return cx.builder.icmp_unsigned("!=", _list_of(cx, node), PTR(None))


def _length(cx: Context, node: Call, args: list[Value]) -> Value:
    del args
    return cx.builder.load(word_at(cx, _list_of(cx, node), _COUNT), typ=I64)


def _item_of(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _list_of(cx, node), _ITEMS, args[1]), typ=PTR)


def _elements(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _item_of(cx, node, args), _DATA), typ=I64)


def _rank(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _item_of(cx, node, args), _RANK), typ=I64)


def _extent(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _item_of(cx, node, args), _DIMS, args[2]), typ=I64)


def _hand_over(cx: Context, node: Call, args: list[Value]) -> Value:
    del args
    list_ = _list_of(cx, node)
    cx.builder.store(PTR(None), list_slot(cx, node))
    return cx.builder.ptrtoint(list_, I64)


def _int64_at(cx: Context, node: Call, args: list[Value]) -> Value:
    del node
    place = args[0] if args[0].type == PTR else cx.builder.inttoptr(args[0], PTR)
    return cx.builder.load(place, typ=I64)


LIST_EXPRESSIONS: dict[str, Callable[[Context, Call, list[Value]], Value]] = {
    "list_exists": _exists,
    "list_length": _length,
    "list_item": _elements,
    "list_rank": _rank,
    "list_extent": _extent,
    "list_hand_over": _hand_over,
    "int64_at": _int64_at,
}
