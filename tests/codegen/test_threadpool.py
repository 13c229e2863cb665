"""The pool's code for the targets it is made for; `tests/runtime` runs it."""

from __future__ import annotations

import re

import pytest

from tilewright.codegen.llvm.machine import emit_assembly, target_machine
from tilewright.codegen.llvm.threadpool import threadpool_module, threadpool_object
from tilewright.runtime.objectfile import names_of
from tilewright.support.errors import UserError

LINUX = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"]
MACOS = ["x86_64-apple-macosx12.0", "arm64-apple-macosx12.0"]
EXPORTS = {f"tw_pool_{n}" for n in ("create", "destroy", "stop", "run", "threads", "set_spin")}
LINUX_ALONE = {"pthread_setaffinity_np", "pthread_setname_np", "mmap", "madvise"}


@pytest.mark.parametrize("triple", LINUX + MACOS)
def test_interface(triple: str) -> None:
    assert names_of(threadpool_object(triple)).defined == EXPORTS


@pytest.mark.parametrize("triple", LINUX + MACOS)
def test_only_libc_and_pthreads_are_needed(triple: str) -> None:
    needed = names_of(threadpool_object(triple)).needed
    others = {name for name in needed if not name.startswith("pthread_")}
    assert others <= {
        *("clock_gettime", "getpid", "sched_yield", "sigfillset"),
        *("free", "madvise", "memcpy", "memset", "mmap", "munmap", "posix_memalign"),
    }
    assert bool(needed & LINUX_ALONE) == ("linux" in triple)


@pytest.mark.parametrize(
    ("triple", "hint"), [(LINUX[0], "\tpause"), (LINUX[1], "\tisb"), (MACOS[1], "\tisb")]
)
def test_waiting_tells_the_core(triple: str, hint: str) -> None:
    text = emit_assembly(str(threadpool_module(triple)), target_machine(triple, "", ""))
    assert hint in text


@pytest.mark.parametrize("triple", LINUX)
def test_no_thread_local_storage(triple: str) -> None:
    assert "thread_local" not in str(threadpool_module(triple))


def test_unknown_systems_are_refused() -> None:
    with pytest.raises(UserError, match="for x86_64-unknown-haiku: it is written for Linux, An"):
        threadpool_module("x86_64-unknown-haiku")


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_windows_has_its_own_functions(arch: str) -> None:
    text = str(threadpool_module(f"{arch}-pc-windows-msvc"))
    declared = set(re.findall(r"declare[^@]*@\"?([\w.]+)", text))
    assert {"CreateThread", "SleepConditionVariableSRW", "_aligned_malloc"} <= declared
    assert not [
        name
        for name in declared
        if name.startswith(("pthread", "posix", "sig", "m")) and name not in ("memset", "memcpy")
    ]
