"""Names in object files of all the formats we emit."""

from __future__ import annotations

import pytest

from tilewright.codegen.llvm.machine import emit_object, target_machine
from tilewright.runtime.objectfile import names_of
from tilewright.support.errors import UserError

TEXT = """
target triple = "{triple}"
declare i64 @needed(i64)
declare extern_weak i64 @maybe(i64)
@data = global i64 1
@hidden = internal global i64 2
define i64 @defined(i64 %x) {{
  %a = call i64 @needed(i64 %x)
  %b = call i64 @local(i64 %a)
  %c = call i64 @maybe(i64 %b)
  %d = load i64, ptr @hidden
  store i64 %d, ptr @data
  ret i64 %c
}}
define internal i64 @local(i64 %x) noinline {{
  %y = mul i64 %x, 3
  ret i64 %y
}}
"""


def compiled(triple: str) -> bytes:
    return emit_object(TEXT.format(triple=triple), target_machine(triple, "", ""))


@pytest.mark.parametrize(
    ("triple", "architecture"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64"),
        ("aarch64-unknown-linux-gnu", "aarch64"),
        ("riscv64-unknown-linux-gnu", "riscv64"),
        ("x86_64-apple-macosx12.0", "x86_64"),
        ("arm64-apple-macosx12.0", "aarch64"),
    ],
)
def test_names(triple: str, architecture: str) -> None:
    names = names_of(compiled(triple))
    assert names.architecture == architecture
    assert names.defined == {"data", "defined"}
    assert names.needed == {"needed"}


@pytest.mark.parametrize("code", [b"", b"MZ", b"\x7fELF", b"!<arch>\n" + bytes(100)])
def test_foreign_files_are_refused(code: bytes) -> None:
    with pytest.raises(UserError, match="cannot read object code: it is neither"):
        names_of(code)


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx12.0"])
def test_damaged_files_are_refused_or_read(triple: str) -> None:
    whole = compiled(triple)
    for length in range(8, len(whole), 7):
        try:
            names_of(whole[:length])
        except UserError as error:
            assert "damaged" in str(error)


def test_executables_are_refused() -> None:
    whole = bytearray(compiled("aarch64-unknown-linux-gnu"))
    whole[16] = 3
    with pytest.raises(UserError, match="not a relocatable one"):
        names_of(bytes(whole))
