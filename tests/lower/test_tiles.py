"""place_tiles: buffers of scope tile become matrix registers."""

from __future__ import annotations

import pytest

from tilewright.ir import parse_function
from tilewright.lower.tiles import place_tiles
from tilewright.schedule import find_intrin
from tilewright.support.errors import UserError

find_intrin("amx.tdpbssd")  # which declares the instructions

PARALLEL = """
def f(A: i8[4096], C: i32[1024]):
    for p in parallel(4):
        with scope():
            T = alloc(i32[256], scope="tile")
            X = alloc(i8[2048], scope="tile")
            llvm.x86.tilezero(tile_of(T[0]))
            llvm.x86.tileloadd64(tile_of(X[1024]), address_of(A[p * 1024]), 64)
            llvm.x86.tilestored64(
                tile_of(T[0]), address_of(C[p * 256]), distance(C[p * 256], C[p * 256 + 16])
            )
"""


def test_registers_and_set_up() -> None:
    text = str(place_tiles(parse_function(PARALLEL)))
    loop = text.index("for p in parallel(4)")
    assert (
        loop < text.index("ldtilecfg") < text.index("tilezero(i8(0))") < text.index("tilerelease")
    )
    assert "tileloadd64(i8(2), address_of(A[p * 1024]), 64)" in text
    assert "tilestored64(i8(0), address_of(C[p * 256]), 64)" in text
    assert 'scope="tile"' not in text


def test_functions_without_tiles_stay() -> None:
    f = parse_function("def f(A: f32[4]):\n    A[0] = 1.0\n")
    assert place_tiles(f) is f


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'T = alloc(i32[2304], scope="tile")\n    llvm.x86.tilezero(tile_of(T[0]))',
            "buffers of scope tile need 9 matrix registers: there are 8",
        ),
        (
            'T = alloc(i32[256], scope="tile")\n    T[3] = 1',
            "buffer T of scope tile is read or written element by element",
        ),
        (
            'T = alloc(i32[100], scope="tile")\n    llvm.x86.tilezero(tile_of(T[0]))',
            "buffer T of scope tile is not made of whole tiles",
        ),
        (
            'T = alloc(i32[512], scope="tile")\n'
            "    for t in range(2):\n        llvm.x86.tilezero(tile_of(T[t * 256]))",
            "its place depends on a loop",
        ),
        (
            'T = alloc(i32[256], scope="tile")\n'
            "    for t in parallel(2):\n        llvm.x86.tilezero(tile_of(T[0]))",
            "the iterations of parallel loop t share a buffer of scope tile",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(body: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        place_tiles(parse_function(f"def f(C: i32[256]):\n    {body}\n"))
