"""Lists of tensors: what sequences and optionals are while a program runs.

    list    references; how many items it has; how many fit; the address of each item
    item    references; the address of its elements; its rank; its dimensions; elements of its own

All of these are words of eight bytes. A list that is null is an optional that holds nothing. Lists
and items are shared by counting references: a list is changed only where nothing else refers to it,
and copied before where something does, while the copy shares its items. Outside of kernels a
program is one thread, so that counts are plain numbers. What the caller of a program passes to it
has a reference of the caller's own, and is never freed here.

The functions below become part of the program that uses them; they call nothing but libc.
`NAME.release` is for the caller of the program `NAME`, who is handed lists over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.functions import I1, I64, PTR, VOID, Body, Field, Library, Value, ir
from tilewright.ir import Call, Const

_ALIGNMENT: Final = 64
_WORD: Final = 8
_REFERENCES: Final = Field(0, I64)
_COUNT, _ROOM = Field(8, I64), Field(16, I64)
_ITEMS: Final = Field(24, PTR)
#: What a list without items takes.
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
            self._alone,
            self._insert,
            self._erase,
        ):
            emit()

    def _drop(self) -> None:
        """void drop(item): one reference less."""
        f = self._library.define("list.drop", VOID, [PTR])
        (item,) = f.args
        left = _count(f, item, -1)
        with f.when(f.b.icmp_signed("==", left, I64(0))):
            self._free(f, item)
        f.ret()

    def _releases(self) -> None:
        """void NAME.release(list): one reference less; null is nothing."""
        f = self._library.define(self._release, VOID, [PTR], exported=True)
        (held,) = f.args
        with f.when(f.is_null(held)):
            f.ret()
        left = _count(f, held, -1)
        with f.when(f.b.icmp_signed("!=", left, I64(0))):
            f.ret()
        with f.loop_from(I64(0), f.get(held, _COUNT)) as (index, _):
            f.call("list.drop", _item(f, held, index))
        self._free(f, held)
        f.ret()

    def _empty(self) -> None:
        """list empty(): a new one without items; null: no memory."""
        f = self._library.define("list.empty", PTR, [])
        made = self._malloc(f, I64(EMPTY_BYTES))
        with f.when(f.b.not_(f.is_null(made))):
            for value, field in ((1, _REFERENCES), (0, _COUNT), (0, _ROOM)):
                f.put(I64(value), made, field)
        f.ret(made)

    def _alone(self) -> None:
        """list alone(list, room): with so much room, and no other reference; null: no memory."""
        f = self._library.define("list.alone", PTR, [PTR, I64])
        held, room = f.args
        is_alone = f.b.icmp_signed("==", f.get(held, _REFERENCES), I64(1))
        fits = f.b.icmp_signed("<=", room, f.get(held, _ROOM))
        with f.when(f.b.and_(is_alone, fits)):
            f.ret(held)
        more = f.b.add(room, f.b.add(f.b.lshr(room, I64(1)), I64(4)))
        bytes_ = f.b.add(f.b.mul(more, I64(_WORD)), I64(_ITEMS.offset))
        with f.when(is_alone):
            grown = self._resized(f, held, bytes_)
            with f.when(f.b.not_(f.is_null(grown))):
                f.put(more, grown, _ROOM)
            f.ret(grown)
        made = self._malloc(f, bytes_)
        with f.when(f.is_null(made)):
            f.ret(made)
        count = f.get(held, _COUNT)
        for value, field in ((I64(1), _REFERENCES), (count, _COUNT), (more, _ROOM)):
            f.put(value, made, field)
        with f.loop_from(I64(0), count) as (index, _):
            item = _item(f, held, index)
            _count(f, item, 1)
            f.b.store(item, f.at(made, _ITEMS, index, _WORD))
        _count(f, held, -1)
        f.ret(made)

    def _insert(self) -> None:
        """item insert(slot, position, bytes, rank): room for a new item; null: no memory."""
        f = self._library.define("list.insert", PTR, [PTR, I64, I64, I64])
        slot, position, bytes_, rank = f.args
        header = f.b.add(f.b.mul(rank, I64(_WORD)), I64(_DIMS.offset + _ALIGNMENT))
        item = self._malloc(f, f.b.add(header, bytes_))
        with f.when(f.is_null(item)):
            f.ret(item)
        old = f.b.load(slot, typ=PTR)
        count = f.get(old, _COUNT)
        held = f.call("list.alone", old, f.b.add(count, I64(1)))
        with f.when(f.is_null(held)):
            self._free(f, item)
            f.ret(held)
        f.b.store(held, slot)
        self._shift(f, held, position, f.b.add(position, I64(1)), f.b.sub(count, position))
        f.b.store(item, f.at(held, _ITEMS, position, _WORD))
        f.put(f.b.add(count, I64(1)), held, _COUNT)
        end = f.b.add(f.b.ptrtoint(item, I64), f.b.sub(header, I64(1)))
        f.put(I64(1), item, _REFERENCES)
        f.put(f.b.and_(end, I64(-_ALIGNMENT)), item, _DATA)
        f.put(rank, item, _RANK)
        f.ret(item)

    def _erase(self) -> None:
        """bool erase(slot, position): false where there is no memory."""
        f = self._library.define("list.erase", I1, [PTR, I64])
        slot, position = f.args
        old = f.b.load(slot, typ=PTR)
        count = f.get(old, _COUNT)
        held = f.call("list.alone", old, count)
        with f.when(f.is_null(held)):
            f.ret(I1(False))
        f.b.store(held, slot)
        f.call("list.drop", _item(f, held, position))
        left = f.b.sub(count, I64(1))
        self._shift(f, held, f.b.add(position, I64(1)), position, f.b.sub(left, position))
        f.put(left, held, _COUNT)
        f.ret(I1(True))

    # ---- libc -----------------------------------------------------------------------------------

    def _shift(self, f: Body, held: Value, start: Value, to: Value, count: Value) -> None:
        """Move the addresses of items to another position."""
        source, target = (f.at(held, _ITEMS, k, _WORD) for k in (start, to))
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
    """The references of a list or an item, after so many more."""
    now = f.b.add(f.get(owner, _REFERENCES), I64(change))
    f.put(now, owner, _REFERENCES)
    return now


def _item(f: Body, held: Value, index: Value) -> Value:
    return f.b.load(f.at(held, _ITEMS, index, _WORD), typ=PTR)


# ---- what expressions ask -----------------------------------------------------------------------


def list_slot(cx: Context, node: Call, operand: int = 0) -> Value:
    """Where the address of a numbered list is kept."""
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
    """Write the dimensions of an item down."""
    for axis, dim in enumerate(dims):
        cx.builder.store(dim, word_at(cx, item, _DIMS, I64(axis)))


def refer(cx: Context, held: Value) -> None:
    """One reference more to a list, which may be null."""
    builder = cx.builder
    with builder.if_then(builder.icmp_unsigned("!=", held, PTR(None))):
        place = word_at(cx, held, _REFERENCES)
        builder.store(builder.add(builder.load(place, typ=I64), I64(1)), place)


def _held(cx: Context, node: Call) -> Value:
    return cx.builder.load(list_slot(cx, node), typ=PTR)


def _exists(cx: Context, node: Call, args: list[Value]) -> Value:
    del args
    return cx.builder.icmp_unsigned("!=", _held(cx, node), PTR(None))


def _length(cx: Context, node: Call, args: list[Value]) -> Value:
    del args
    return cx.builder.load(word_at(cx, _held(cx, node), _COUNT), typ=I64)


def _item_of(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _held(cx, node), _ITEMS, args[1]), typ=PTR)


def _elements(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _item_of(cx, node, args), _DATA), typ=I64)


def _rank(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _item_of(cx, node, args), _RANK), typ=I64)


def _extent(cx: Context, node: Call, args: list[Value]) -> Value:
    return cx.builder.load(word_at(cx, _item_of(cx, node, args), _DIMS, args[2]), typ=I64)


def _hand_over(cx: Context, node: Call, args: list[Value]) -> Value:
    del args
    held = _held(cx, node)
    cx.builder.store(PTR(None), list_slot(cx, node))
    return cx.builder.ptrtoint(held, I64)


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
