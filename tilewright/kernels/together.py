"""Compiles all kernels of a model on all cores, or takes them from the cache.

In a model of many kernels, those whose loops differ only in sizes share code that takes the sizes
(`kernels.families`). The families are found after scheduling, and cached beside the code, as a
plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from tilewright.ir import Function
from tilewright.kernels.compiled import (
    CompiledKernel,
    Once,
    ScheduledKernel,
    completed,
    kernel_key,
    once_of,
    shared_key,
)
from tilewright.kernels.families import Family, families, narrower
from tilewright.kernels.jobs import Job, packed
from tilewright.kernels.pipeline import Options
from tilewright.kernels.workers import Processes, processes
from tilewright.support.cache import DiskCache, cache_key, default_cache
from tilewright.target import Target

#: From this many kernels on a model shares code: compilation takes long then, and a kernel with
#: sizes as arguments, which may be slower by a few percent, is a small part of the run time.
MANY: Final = 64


def compile_kernels(
    functions: Sequence[Function], target: Target, options: Sequence[Options]
) -> list[CompiledKernel]:
    """The kernels of all functions, each with its own options."""
    keys = [kernel_key(f, target, o) for f, o in zip(functions, options, strict=True)]
    work = _Kernels(functions, target, options, keys, default_cache())
    may_share = len(functions) >= MANY and _may_share(target, options[0])
    return work.planned() if may_share else work.apart()


def _may_share(target: Target, options: Options) -> bool:
    """Whether kernels with sizes as arguments are as good as others: an index fits a register, and
    no bounds checks would name buffers."""
    return target.kind.device == "cpu" and target.pointer_bits == 64 and not options.checked


class _Row(NamedTuple):
    """A line of a plan: the key of a kernel's code, and its data outside that code."""

    entry: str
    sizes: tuple[int, ...] = ()
    once: Once | None = None
    note: str = ""


class _Kernels(NamedTuple):
    """The kernels of a model, by index, and the keys of unshared code."""

    functions: Sequence[Function]
    target: Target
    options: Sequence[Options]
    keys: Sequence[str]
    store: DiskCache

    def apart(self) -> list[CompiledKernel]:
        """All kernels, each with its own code."""
        pairs = zip(self.functions, self.options, strict=True)
        jobs = [Job("compile", function, options) for function, options in pairs]
        with processes(self.target, len(jobs) - len(self._found(self.keys))) as workers:
            codes = self._codes(dict(zip(self.keys, jobs, strict=True)), workers)
        return [CompiledKernel.unpacked(codes[key]) for key in self.keys]

    def planned(self) -> list[CompiledKernel]:
        """All kernels, with code shared where possible."""
        key = cache_key("plan", *self.keys)
        plan = _plan(self.store.get(key))
        codes = self._found([row.entry for row in plan])
        if not plan or any(row.entry not in codes for row in plan):
            with processes(self.target, len(self.functions)) as workers:
                plan, codes = self._made(workers)
            self.store.put(key, json.dumps(plan).encode())
        return [_kernel(codes[row.entry], row) for row in plan]

    def _made(self, workers: Processes) -> tuple[list[_Row], dict[str, bytes]]:
        """A plan, and the code that it refers to."""
        pairs = zip(self.functions, self.options, strict=True)
        done = workers.perform([Job("schedule", function, options) for function, options in pairs])
        kernels = cast("list[ScheduledKernel]", done)
        parts = [kernel.parts for kernel in kernels]
        found = families(parts)
        own = {self.keys[k]: self._own(k, kernel) for k, kernel in enumerate(kernels)}
        rows = [_Row(key) for key in self.keys]
        codes: dict[str, bytes] = {}
        while found:
            shared = {shared_key(f.parts, self.target, self.options[0]): f for f in found}
            jobs = {key: self._sharing(family) for key, family in shared.items()}
            codes |= self._codes(jobs, workers)
            for key in [key for key in shared if codes[key]]:
                family = shared.pop(key)
                for k, sizes in zip(family.members, family.sizes, strict=True):
                    rows[k] = _Row(key, sizes, kernels[k].once, kernels[k].note)
            found = [f for wide in shared.values() for f in narrower(wide, parts)]
        left = {row.entry: own[row.entry] for row in rows if row.entry not in codes}
        return rows, codes | self._codes(left, workers)

    def _own(self, k: int, kernel: ScheduledKernel) -> Job:
        """The job for a kernel's own code."""
        return Job("generate", self.functions[k], self.options[k], kernel)

    def _sharing(self, family: Family) -> Job:
        """The job for a family's code; its first kernel is named in error reports."""
        first, parts = family.members[0], ScheduledKernel(family.parts, None, "")
        return Job("share", self.functions[first], self.options[first], parts)

    def _codes(self, jobs: Mapping[str, Job], workers: Processes) -> dict[str, bytes]:
        """The results of jobs, from the cache if present."""
        found = self._found(list(jobs))
        missing = [key for key in jobs if key not in found]
        for key, made in zip(missing, workers.perform([jobs[k] for k in missing]), strict=True):
            found[key] = packed(made)
            self.store.put(key, found[key])
        return found

    def _found(self, keys: Sequence[str]) -> dict[str, bytes]:
        found = {key: self.store.get(key) for key in dict.fromkeys(keys)}
        return {key: data for key, data in found.items() if data is not None}


def _plan(data: bytes | None) -> list[_Row]:
    """The cached plan; empty if there is none."""
    rows: list[Any] = [] if data is None else json.loads(data)
    return [_Row(e, tuple(sizes), once and once_of(once), note) for e, sizes, once, note in rows]


def _kernel(code: bytes, row: _Row) -> CompiledKernel:
    kernel = CompiledKernel.unpacked(code)
    return completed(kernel, row.once, row.note, row.sizes) if row.sizes else kernel
