"""`tilewright bench`: latency, throughput and memory, beside peers in the same minute."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.arrays import inputs_for
from tilewright.cli.command import Command, Exit
from tilewright.cli.loading import is_artifact, open_model, params_of
from tilewright.cli.options import (
    add_compile_options,
    add_inputs,
    add_model,
    listed,
    one_of,
    positive,
)
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console
    from tilewright.support.timing import Latencies

_PEER_NAMES = ("onnxruntime", "openvino", "torch")
#: Seconds at the beginning of an engine's turn that do not count, and those that do.
_SETTLING, _TURN = 0.05, 0.1


def _configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--vs",
        type=listed(one_of(_PEER_NAMES)),
        default=[],
        metavar="PEER,…",
        help=f"time these beside it: {', '.join(_PEER_NAMES)}",
    )
    parser.add_argument("--threads", type=listed(positive), default=[None], metavar="N,…")
    parser.add_argument("--batch", type=listed(positive), default=[None], metavar="N,…")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each setting; default 3")
    parser.add_argument(
        "--onnx", type=Path, metavar="MODEL", help="the model for peers, where MODEL is an artifact"
    )
    add_inputs(parser)
    add_compile_options(parser)


@dataclass(frozen=True)
class EngineTimes:
    """One way to run the model in one setting; times in seconds."""

    engine: str
    threads: int | None
    batch: int | None
    runs: int
    p50: float
    p90: float
    p99: float
    least: float
    #: Samples per second.
    throughput: float
    #: What loading and the first run added to the process, in bytes.
    memory: int | None


def _run(args: argparse.Namespace, console: Console) -> Exit:
    rows: list[EngineTimes] = []
    for batch in args.batch:
        for threads in args.threads:
            rows += _setting(args, console, batch, threads)
    console.result(results=[asdict(r) for r in rows])
    header = ("engine", "threads", "batch", "p50", "p90", "p99", "least", "samples/s", "memory")
    console.table(header, [_cells(r) for r in rows])
    return Exit.DONE


def _cells(r: EngineTimes) -> tuple[str, ...]:
    from tilewright.support.timing import format_seconds

    times = [format_seconds(t) for t in (r.p50, r.p90, r.p99, r.least)]
    memory = "–" if r.memory is None else f"{r.memory / 1e6:.0f} MB"
    numbers = [str(r.threads or "all"), str(r.batch or "–")]
    return (r.engine, *numbers, *times, f"{r.throughput:.1f}", memory)


def _setting(
    args: argparse.Namespace, console: Console, batch: int | None, threads: int | None
) -> list[EngineTimes]:
    """All engines in one setting, run in turn so that noise falls on all alike."""
    own = copy.copy(args)
    own.threads = threads
    if batch:
        own.shapes = _batched(args, batch)
    before = _resident()
    model = open_model(own, console)
    inputs = inputs_for(model.inputs, own, console)
    runs: dict[str, Callable[[], Any]] = {"tilewright": lambda: model.run(inputs)}
    runs["tilewright"]()
    memory = {"tilewright": _memory_growth(before)}
    for name in args.vs:
        _add_peer(name, args, threads, inputs, runs, memory, console)
    samples = interleaved(runs, args.seconds)
    size = batch or _rows(inputs)
    return [_measured(n, threads, batch, s, size, memory[n]) for n, s in samples.items()]


def _batched(args: argparse.Namespace, batch: int) -> list[tuple[str, list[int | str]]]:
    """Shapes with another first dimension, from the model's own."""
    if is_artifact(args.model):
        raise UserError("--batch has no effect on an artifact", remedy="pass the model itself")
    from tilewright.frontends import read_model

    given = dict(args.shapes)
    params = read_model(str(args.model), shapes=given, params=params_of(args)).main.params
    shapes = {p.name: [_dim(d) for d in p.shape] for p in params}
    return [(n, [batch, *s[1:]]) for n, s in shapes.items() if s]


def _dim(dim: Any) -> int | str:
    from tilewright.ir import Const

    return int(dim.value) if isinstance(dim, Const) else str(dim)


def _add_peer(
    name: str,
    args: argparse.Namespace,
    threads: int | None,
    inputs: Any,
    runs: dict[str, Callable[[], Any]],
    memory: dict[str, int | None],
    console: Console,
) -> None:
    from tilewright.cli.peers import PEERS, first_line

    source = args.onnx or args.model
    if is_artifact(source):
        raise UserError("peers need the model itself", remedy="pass it with --onnx MODEL")
    before = _resident()
    try:
        runner = PEERS[name](source, threads)
        runner(inputs)
    except Exception as error:  # a peer may fail in any way of its own
        console.note(f"without {name}: {first_line(str(error)) or type(error).__name__}")
        return
    runs[name] = lambda: runner(inputs)
    memory[name] = _memory_growth(before)


# ---- measuring ----------------------------------------------------------------------------------


def interleaved(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Latencies]:
    """Times of single runs, each engine in turn until the time is up.

    Threads wait for more work by spinning, in most engines: the runs at the beginning of a turn may
    meet those of the engine before, and do not count.
    """
    from tilewright.support.timing import Latencies

    samples: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < 3:
        for name, run in runs.items():
            _for(_SETTLING, run)
            samples[name] += _for(_TURN, run)
    return {name: Latencies(tuple(taken)) for name, taken in samples.items()}


def _for(seconds: float, run: Callable[[], Any]) -> list[float]:
    """Times of runs, one at least, until the time is up."""
    taken: list[float] = []
    now = time.perf_counter()
    end = now + seconds
    while not taken or now < end:
        start = time.perf_counter()
        run()
        now = time.perf_counter()
        taken.append(now - start)
    return taken


def _measured(
    engine: str,
    threads: int | None,
    batch: int | None,
    taken: Latencies,
    size: int,
    memory: int | None,
) -> EngineTimes:
    p50, p90, p99 = (taken.percentile(p) for p in (50, 90, 99))
    least, count = min(taken.samples), len(taken.samples)
    return EngineTimes(engine, threads, batch, count, p50, p90, p99, least, size / p50, memory)


def _rows(inputs: dict[str, Any]) -> int:
    shapes = [a.shape for a in inputs.values() if a.ndim]
    return max(1, shapes[0][0]) if shapes else 1


def _resident() -> int | None:
    """Bytes of this process that are in memory, where the system reports them."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    import resource

    return int(pages) * resource.getpagesize()


def _memory_growth(before: int | None) -> int | None:
    now = _resident()
    return None if now is None or before is None else max(0, now - before)


COMMAND = Command(
    "bench",
    "measure latency, throughput and memory, beside peers",
    _configure,
    _run,
    (
        "bench resnet50.onnx --vs onnxruntime --threads 1,2",
        "bench bert.onnx --batch 1,8 --seconds 10 --json",
        "bench resnet50.twm --vs onnxruntime --onnx resnet50.onnx",
    ),
)
