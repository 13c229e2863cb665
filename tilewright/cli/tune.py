"""`tilewright tune`: searches for faster schedules of a model's kernels, by measuring them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.arrays import read_arrays
from tilewright.cli.command import Command, Exit
from tilewright.cli.compile import require_writable
from tilewright.cli.loading import params_of, require_model
from tilewright.cli.options import (
    add_compile_options,
    add_given_inputs,
    add_threads,
    one_of,
    positive,
)
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.cli.console import Console
    from tilewright.runtime import BundledOutcome
    from tilewright.tune import Summary

_TUNERS = ("gbt", "ga", "annealing", "random", "grid")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        nargs="?",
        help="a model of any front end (a file, or a SavedModel's folder)",
    )
    _add_elsewhere(parser.add_argument_group("measuring elsewhere"))
    parser.add_argument(
        "--budget",
        metavar="TIME",
        help="90s, 10m, 1.5h; default 10m, for --bundle 1h, for --measure as long as it takes",
    )
    parser.add_argument(
        "--tuner",
        type=one_of(_TUNERS),
        metavar="NAME",
        help=f"{', '.join(_TUNERS)}; default gbt where LightGBM is installed, or else ga",
    )
    parser.add_argument(
        "--space",
        choices=["rules", "sketches"],
        default="rules",
        help="what is searched: what the default rules decide (default), or sketches of loops",
    )
    parser.add_argument("--trials", type=positive, help="samples of each kernel at most")
    parser.add_argument(
        "--no-variants",
        dest="variants",
        action="store_false",
        help="leave the graph as it is: search schedules of kernels only",
    )
    parser.add_argument(
        "--transfer",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.jsonl",
        help="records of other models or machines, whose best is tried first; may be repeated",
    )
    parser.add_argument(
        "--report", type=Path, metavar="PAGE.html", help="draw what was measured as one page"
    )
    add_given_inputs(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the search; default 0")
    add_threads(parser)
    add_compile_options(parser)


def _add_elsewhere(group: Any) -> None:
    group.add_argument(
        "--on",
        metavar="HOST:PORT",
        help="measure on this server, on devices of this tracker, or on the board at this serial"
        " port (/dev/ttyACM0, tcp://host:port)",
    )
    group.add_argument("--name", help="what the tracker's devices are called")
    group.add_argument("--key-file", metavar="FILE", help="the key of the server or tracker")
    group.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE.zip",
        help="measure nothing: write candidates, built here, for a machine without a compiler",
    )
    group.add_argument(
        "--measure",
        type=Path,
        metavar="FILE.zip",
        help="measure a bundle on this machine, which needs no compiler; given the MODEL by its"
        " default schedules as an artifact, time winners inside of it",
    )


def _run(args: argparse.Namespace, console: Console) -> Exit:
    records = args.records[0] if args.records else Path("tuning.jsonl")
    _require_one_way(args)
    for path in filter(None, (args.bundle or records, args.report)):
        require_writable(path)
    if args.measure is not None:
        return _measure(args, records, console)
    require_model(args.model)
    return _bundle(args, console) if args.bundle is not None else _tune(args, records, console)


def _require_one_way(args: argparse.Namespace) -> None:
    ways = [w for w in ("measure", "bundle", "on") if getattr(args, w) is not None]
    if len(ways) > 1:
        raise UserError(f"--{ways[0]} and --{ways[1]} do not go together")
    if args.model is None and args.measure is None:
        raise UserError("give a MODEL to tune, or a bundle to --measure")
    if args.on is None and (args.name or args.key_file):
        raise UserError("--name and --key-file belong to --on")
    if args.on is not None and not args.key_file and not _is_port(args.on):
        raise UserError("--on needs the --key-file of the server or tracker")


def _measure(args: argparse.Namespace, records: Path, console: Console) -> Exit:
    from tilewright.tune import measure

    def show(outcome: BundledOutcome) -> None:
        console.note(_line(outcome))

    outcomes = measure(args.measure, records, model=args.model, budget=args.budget, on_result=show)
    gains = [o for o in outcomes if o.ratio < 1]
    trials = sum(o.trials for o in outcomes)
    tasks = [asdict(o) for o in outcomes]
    console.result(records=str(records), trials=trials, improved=len(gains), tasks=tasks)
    console.text(f"{trials} trials of {len(outcomes)} kernels; {len(gains)} are faster now")
    console.text(f"compile with --records {records} to have it")
    return Exit.DONE


def _line(outcome: BundledOutcome) -> str:
    failed = ", ".join(f"{n} {why}" for why, n in outcome.failures.items())
    trials = f"{outcome.trials} trials{f' ({failed})' if failed else ''}"
    text = f"it cannot be measured: {outcome.error}" if outcome.error else trials
    return f"{outcome.name[:48]:48} ×{1 / outcome.ratio:.2f}  {text}"


def _bundle(args: argparse.Namespace, console: Console) -> Exit:
    import tilewright as tw

    summary = tw.tune.bundle(
        str(args.model),
        args.target or "llvm",
        args.bundle,
        trials=args.trials,
        budget=args.budget or "1h",
        space=args.space,
        dims=dict(args.dim),
        threads=args.threads,
        seed=args.seed,
        records=[path for path in args.records if path.exists()],
        **_compiling(args),
    )
    console.result(**asdict(summary))
    console.text(str(summary))
    console.text(f"measure it there by `tilewright tune --measure {summary.path} --records …`")
    return Exit.DONE


def _compiling(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "shapes": dict(args.shapes),
        "opt_level": args.opt_level,
        "precision": args.precision,
        "denormals": args.denormals,
        "params": params_of(args),
    }


def _on(args: argparse.Namespace) -> Any:
    """The device or the pool of devices that `--on` names."""
    import tilewright as tw

    if args.on is None:
        return None
    if _is_port(args.on):
        return tw.rpc.connect_serial(args.on)
    found = tw.rpc.connect(args.on, args.key_file)
    is_tracker = isinstance(found, tw.rpc.Tracker)
    if is_tracker and not args.name:
        raise UserError(f"{args.on} is a tracker: give the --name of its devices")
    return found.pool(args.name) if is_tracker else found


def _is_port(on: str) -> bool:
    """Whether it names a serial port rather than a server."""
    return on.startswith(("/", "tcp://"))


def _tune(args: argparse.Namespace, records: Path, console: Console) -> Exit:
    import tilewright as tw

    summary = tw.tune(
        str(args.model),
        args.target,
        on=_on(args),
        budget=args.budget or "10m",
        records=records,
        tuner=args.tuner,
        space=args.space,
        trials=args.trials,
        inputs=read_arrays(args.inputs) if args.inputs else None,
        dims=dict(args.dim),
        transfer=[*args.records[1:], *args.transfer],
        threads=args.threads,
        seed=args.seed,
        variants=args.variants,
        progress=False if console.as_json else None,
        **_compiling(args),
    )
    if args.report:
        tw.tune.write_report(records, args.report)
    _show(summary, console)
    return Exit.INTERRUPTED if summary.interrupted else Exit.DONE


def _show(summary: Summary, console: Console) -> None:
    tasks: list[dict[str, Any]] = [{**asdict(t), "gain": t.gain} for t in summary.tasks]
    console.result(
        records=summary.records,
        seconds=summary.seconds,
        trials=summary.trials,
        failures=summary.failures,
        gain=summary.gain,
        interrupted=summary.interrupted,
        decisions=[{**asdict(d), "gain": d.gain} for d in summary.decisions],
        tasks=tasks,
    )
    tried = [t for t in summary.tasks if t.trials or t.gain > 1]
    console.table(summary.header, [summary.cells(t) for t in tried])
    for line in summary.decision_lines:
        console.text(line)
    console.text(summary.headline)
    console.text(f"compile with --records {summary.records} to have it")


COMMAND = Command(
    "tune",
    "search for faster schedules by measuring them",
    _configure,
    _run,
    (
        "tune resnet50.onnx --budget 10m --records tuning.jsonl",
        "tune bert.onnx --shapes input_ids=1,128 --tuner ga --report tuning.html",
        "tune resnet50.onnx --records here.jsonl --transfer elsewhere.jsonl",
        "tune mobilenet.onnx --on host:9190 --name rasp4 --key-file k --budget 20m",
        "tune resnet50.onnx --target 'cuda -arch=sm_90a' --bundle resnet50.zip",
        "tune --measure resnet50.zip --records h200.jsonl",
    ),
)
