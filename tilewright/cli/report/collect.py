"""Everything that the report shows of a model, as plain data."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tilewright
from tilewright.cli.loading import graph_of
from tilewright.cli.report.drawing import drawn, kind_of
from tilewright.graph import Binding, Graph, kernel_bindings
from tilewright.kernels.levels import kernel_levels
from tilewright.kernels.pipeline import DEFAULTS
from tilewright.lower import ArenaPlan, arena_plan
from tilewright.models.native import NativeModel

if TYPE_CHECKING:
    from tilewright.cli.report.timeline import Timeline


def collect(
    model: NativeModel,
    title: str,
    profile: Timeline | None = None,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """What the page shows; `advance` is called after every kernel."""
    measured = profile.kernels if profile else {}
    main = graph_of(model).main
    host = model.ir("main")
    plan = arena_plan(host, side_by_side=model.target.host is not None)
    owner = _owners(main, model.calls)
    report: dict[str, Any] = {
        "title": title,
        "version": tilewright.__version__,
        "target": str(model.target),
        "inputs": [str(s) for s in model.inputs],
        "outputs": [str(s) for s in model.outputs],
        "graphs": {k: drawn(main, owner, fused=k == "after") for k in ("before", "after")},
        "kernels": [
            {**_kernel(model, name, owner, advance), **measured.get(name, {})}
            for name in model.kernels
        ],
        "calls": [{"step": k, "kernel": name} for k, (_, name) in enumerate(plan.calls)],
        # Sizes over symbolic dimensions are those of a usual one.
        "memory": {**_memory(plan), "usual": bool(host.dims)},
        "constants": model.memory["constants"],
        "profile": profile.run if profile else None,
        "tuned": _tuned(model),
        "launches": _launches(model, plan),
    }
    return report


def _launches(model: NativeModel, plan: ArenaPlan) -> dict[str, Any] | None:
    """What a GPU is asked to run, and what of it goes on at the same time."""
    launches = model.launches
    if not launches:
        return None
    overlap = all(said["access"] is not None for said in launches.values())
    return {
        "count": len(launches),
        "early": sum(said["waits"] for said in launches.values()),
        "calls": len(plan.calls),
        "chain": plan.chain if overlap else len(plan.calls),
        "merged": [
            {"name": name, "before": said["stands_for"]}
            for name, said in launches.items()
            if said.get("stands_for", 1) > 1
        ],
    }


def _tuned(model: NativeModel) -> dict[str, Any]:
    """What records have changed, those of the package among them."""
    changed = [d for d in model.decisions if d.taken != d.default]
    return {
        "kernels": sorted(model.schedulers),
        "decisions": [f"{d}: {d.taken} instead of {d.default}" for d in changed],
    }


def _owners(main: Graph, calls: Sequence[tuple[str, str]]) -> dict[Binding, str]:
    """The kernel of each binding: calls come in the order of the bindings."""
    bindings = _in_order(main, set(kernel_bindings(main)))
    if len(bindings) != len(calls):
        return {}
    for binding, (_, origin) in zip(bindings, calls, strict=True):
        # What was read from text has lost it.
        binding.origin = binding.origin or origin
    return {b: kernel for b, (kernel, _) in zip(bindings, calls, strict=True)}


def _in_order(graph: Graph, kernels: set[Binding]) -> list[Binding]:
    found: list[Binding] = []
    for binding in graph.body:
        if binding in kernels:
            found.append(binding)
            continue
        for inner in binding.expr.graphs:
            found.extend(_in_order(inner, kernels))
    return found


def _kernel(
    model: NativeModel, name: str, owner: Mapping[Binding, str], advance: Callable[[], None]
) -> dict[str, Any]:
    by = model.schedulers.get(name, DEFAULTS.scheduler)
    levels = kernel_levels(model.ir(name), model.target, model.denormals, by)
    own = [b for b, kernel in owner.items() if kernel == name]
    advance()
    return {
        "name": name,
        "kind": kind_of(own[0]) if own else "other",
        "calls": max(1, len(own)),
        "origins": [b.origin for b in own],
        "loops": levels.loops,
        "scheduled": levels.scheduled,
        "llvm": levels.code,
        "asm": levels.asm,
    }


def _memory(plan: ArenaPlan) -> dict[str, Any]:
    """The plan with calls of kernels as the steps of time."""
    steps = [step for step, _ in plan.calls]
    last = max(0, len(steps) - 1)
    places = [
        {
            "name": p.name,
            "offset": p.offset,
            "size": p.size,
            "first": min(last, bisect_left(steps, p.first)),
            "last": max(0, bisect_right(steps, p.last) - 1),
        }
        for p in plan.places
        if p.size
    ]
    return {"size": plan.size, "last": last, "places": places}
