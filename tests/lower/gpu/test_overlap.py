"""Iterations with two products of groups: what may move past what."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from tilewright.ir import Alloc, For, Seq, Stmt, parse_function
from tilewright.lower.gpu.overlap import Overlap, overlap_of

SCORES = "S[0] = K[0]"
RESULTS = "C[0] = C[0] + P[0] * V[0]"


def product(text: str, sums: str) -> str:
    return f"""\
products_start()
for t in thread(128, "threadIdx.x"):
    {text}
products_commit()
products_finish(address_of({sums}[0]), 1, 0)
"""


def phase(text: str) -> str:
    return f'for t in thread(128, "threadIdx.x"):\n    {text}\n'


def parts(*texts: str) -> Overlap | None:
    allocs = "".join(
        f'{name} = alloc(f32[1], scope="{scope}")\n'
        for scope, names in (("shared", "KV"), ("local", "SPCT"))
        for name in names
    )
    body = f'for b in thread(1, "blockIdx.x"):\n{indent(allocs + "".join(texts), " " * 4)}'
    function = parse_function(f"def f(A: f32[1]):\n{indent(body, ' ' * 4)}")
    assert isinstance(function.body, For)
    return overlap_of(list(flat(function.body.body)))


def flat(stmt: Stmt) -> Iterator[Stmt]:
    if isinstance(stmt, Alloc):
        yield from flat(stmt.body)
    elif isinstance(stmt, Seq):
        for child in stmt.statements:
            yield from flat(child)
    else:
        yield stmt


FIRST, SECOND = product(SCORES, "S"), product(RESULTS, "C")


def test_what_touches_the_second_product_waits_for_it() -> None:
    found = parts(
        FIRST, phase("C[0] = C[0] * 2.0"), phase("T[0] = S[0]"), phase("P[0] = T[0]"), SECOND
    )
    assert found is not None
    assert [len(p) for p in (found.between, found.rest)] == [1, 2]
    assert "T[0] = S[0]" in str(found.between[0]), "it passes what scales the sums"


def test_what_comes_after_may_go_before() -> None:
    found = parts(FIRST, phase("P[0] = S[0]"), SECOND, phase("T[0] = T[0] + S[0]"))
    assert found is not None and "T[0] + S[0]" in str(found.between[0])


def test_what_reads_results_after_them_stays() -> None:
    assert parts(FIRST, phase("P[0] = S[0]"), SECOND, phase("T[0] = C[0]")) is None


def test_an_operand_of_both_products_stays() -> None:
    """It is overwritten for the first one while the second one still reads it."""
    both = product("C[0] = C[0] + P[0] * K[0]", "C")
    assert parts(FIRST, phase("P[0] = S[0]"), both) is None


def test_one_product_alone_is_left() -> None:
    assert parts(FIRST, phase("P[0] = S[0]")) is None
