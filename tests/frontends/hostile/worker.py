"""Compiles and runs damaged models, each in a process of its own, within limits.

`python -m tests.frontends.hostile.worker FOLDER` reads lines such as `tflite 17` and answers each
with one line of JSON: {"outcome": "ran" | "refused" | "fault", "detail": …}. Packages are imported
once: the processes are forked from one that has them and does nothing else.

A model must be compiled within the limits; one with loops may say itself that it runs for longer.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

import tilewright as tw
from tests.frontends.hostile.formats import ATTACKS, FORMATS, OUTSIDE, Given
from tilewright.frontends import UnspecialisedError, operators_of, read_model
from tilewright.graph import (
    STRING,
    Binding,
    Builder,
    Call,
    Loop,
    Module,
    TensorType,
    all_graphs,
    evaluate,
    module_part,
)
from tilewright.runtime import RunnableModel, TensorSpec
from tilewright.support.errors import UserError

#: Processor seconds and bytes of memory for one model; on a busy machine it may wait longer.
SECONDS: Final = 10
WAITING_SECONDS: Final = 600
BYTES: Final = 2 << 30
#: Inputs with more elements are not made.
_MANY: Final = 1 << 20
#: Results below are not infinite, in whichever order they are computed.
_LARGE: Final = 1e18
_DECIDING: Final = frozenset(["nms", "top_k", "argmax", "argmin", "non_zero", "random_key"])
_LEVELS: Final = (0, 1, 1, 3)
_FRONT_ENDS: Final = ("onnx", "tflite", "tensorflow", "keras", "mxnet", "caffe", "darknet", "torch")
_FORBIDDEN: Final = ("/dev/zero", "/proc/self/mem", "/etc/passwd")
_EXECUTING: Final = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen")
_EXECUTING_MORE: Final = ("pickle.find_class", "socket.connect", "socket.bind")

#: What came of a model, and what there is to say about it.
Answer = tuple[str, str]
Say = Callable[[Answer], None]


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder.parent / OUTSIDE).mkdir(exist_ok=True)
    warnings.simplefilter("ignore")
    _prepare()
    print("ready", flush=True)
    for line in sys.stdin:
        kind, number = line.split()
        outcome, detail = apart(_work(kind, int(number), folder), SECONDS, BYTES)
        print(json.dumps({"outcome": outcome, "detail": detail}), flush=True)


def _work(kind: str, number: int, folder: Path) -> Callable[[Say], Answer]:
    """Make a file; what is left is to take it to its end."""
    if kind == "artifact":
        made = import_module("tests.frontends.hostile.artifacts").artifact(folder, number)
        return lambda _: watched(made.outcome, folder)
    given = (FORMATS | ATTACKS)[kind](folder, number)
    level = _LEVELS[number // 7 % len(_LEVELS)]
    return lambda say: watched(lambda: _outcome(given, level, say), folder)


def _prepare() -> None:
    """Do here, once, what every process would do first: import the compiler, and set LLVM up."""
    for folder in _FRONT_ENDS:
        operators_of(folder)
    builder = Builder()
    builder.output(builder.relu(builder.input("x", "float32", (4,))))
    tw.compile(builder.build(), threads=1)
    # What all have from here need not be looked at, and so copied, by each.
    gc.freeze()


# ---- processes ----------------------------------------------------------------------------------


def apart(work: Callable[[Say], Answer], seconds: int, size: int) -> Answer:
    """What `work` answers in a process of its own; a fault if that dies or takes too much.

    Where time runs out, what it said before is the answer.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _limit(seconds, size)
        _answer(writing, work(lambda answer: _answer(writing, answer)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answers = pipe.read().splitlines()
    _, status, used = os.wait4(child, 0)
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
    if not answers or (status != 0 and not late):
        return "fault", f"the process ended: {_ended(status)}"
    if used.ru_maxrss << 10 > size:
        return "fault", f"it took {used.ru_maxrss >> 10} MiB"
    outcome, detail = json.loads(answers[-1])
    return outcome, detail


def _answer(pipe: int, answer: Answer) -> None:
    os.write(pipe, json.dumps(answer).encode() + b"\n")


def _limit(seconds: int, size: int) -> None:
    """Limits of this process: libraries that are loaded already take address space as well."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + size
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(WAITING_SECONDS)


def _ended(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"exit code {os.waitstatus_to_exitcode(status)}"
    name = signal.Signals(os.WTERMSIG(status)).name
    return {"SIGPROF": "too much processor time", "SIGALRM": "it waited too long"}.get(name, name)


def _watch(outside: Path) -> list[str]:
    """What must not happen, filled as it does: files read elsewhere, programs started."""
    seen: list[str] = []

    def see(event: str, args: Any) -> None:
        if event in _EXECUTING or event in _EXECUTING_MORE:
            seen.append(f"{event} {args}")
        if event == "open" and isinstance(args[0], str):
            real = os.path.realpath(args[0])
            if real.startswith((str(outside), *_FORBIDDEN)):
                seen.append(f"it opened {real}")

    sys.addaudithook(see)
    return seen


# ---- one model ----------------------------------------------------------------------------------


def watched(work: Callable[[], Answer], folder: Path) -> Answer:
    """What work ends in; a fault if it reads other files or starts programs."""
    seen = _watch(folder.parent / OUTSIDE)
    outcome, detail = work()
    # Reports of faults start programs: what they report tells more.
    return ("fault", seen[0]) if seen and outcome != "fault" else (outcome, detail)


def _outcome(given: Given, level: int, say: Say) -> Answer:
    source, options = given
    try:
        model = tw.compile(source, threads=1, opt_level=level, **options)
        inputs = _inputs(model)
        if inputs is None:
            return "ran", "only compiled"
        graph = _read(given)
        if any(isinstance(b.expr, Loop) for g in all_graphs(graph.main) for b in g.body):
            say(("ran", "it did not end in time"))
        return _judged(graph, level, model, inputs, model.run(inputs))
    except (UserError, UnspecialisedError) as error:
        return "refused", str(error)[:300]
    except BaseException as error:
        return "fault", f"level {level}: {type(error).__name__}: {error}"[:2000]


def _read(given: Given) -> Module:
    source, options = given
    known = {k: v for k, v in options.items() if k in ("params", "inputs")}
    return read_model(source, options.get("shapes"), **known)


def _inputs(model: RunnableModel) -> list[Any] | None:
    rng = np.random.default_rng(0)
    found: list[Any] = []
    for spec in model.inputs:
        if not isinstance(spec, TensorSpec):
            return None
        shape = [d if isinstance(d, int) else 2 for d in spec.shape]
        if np.prod(shape, dtype=float) > _MANY:
            return None
        found.append(_array(rng, spec, shape))
    return found


def _array(rng: Any, spec: TensorSpec, shape: list[int]) -> Any:
    if spec.dtype.name == "string":
        return np.full(shape, "a", object)
    return rng.integers(-2, 4, shape).astype(spec.numpy)


# ---- right answers ------------------------------------------------------------------------------


def _judged(
    graph: Module, level: int, model: RunnableModel, inputs: list[Any], results: list[Any]
) -> Answer:
    """Results must be what the model says that they are, and near those of the evaluator."""
    for spec, result in zip(model.outputs, results, strict=True):
        if isinstance(spec, TensorSpec) and spec.dtype.name != "string":
            array = np.asarray(result)
            if array.dtype != spec.numpy or array.ndim != len(spec.shape):
                return "fault", f"{spec} came as {array.dtype}{array.shape}"
    body = graph.main.body
    decided = next((k for k, b in enumerate(body) if _decides(b)), None)
    if decided is not None:
        # What is near a limit, as good as another, or random, may go either way: what is before
        # counts.
        named = dict(zip((p.name for p in graph.main.params), inputs, strict=True))
        graph = module_part(graph, body[:decided])
        inputs = [named[p.name] for p in graph.main.params]
        results = list(tw.compile(graph, threads=1, opt_level=level).run(inputs))
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, inputs)
    whole = _is_whole(graph)
    for number, pair in enumerate(zip(results, wanted, strict=True)):
        if not _near(*pair, whole):
            return "fault", f"result {number} is {pair[0]!r}, not {pair[1]!r}"[:2000]
    return "ran", ""


def _decides(binding: Binding) -> bool:
    """Whether it chooses among elements, or by chance."""
    return isinstance(binding.expr, Call) and binding.expr.op.name in _DECIDING


def _is_whole(graph: Module) -> bool:
    """Whether it computes with whole numbers only: one that was rounded may be off by one."""
    bindings = [b for g in all_graphs(graph.main) for b in g.body]
    values = [v for b in bindings for v in (*b.outputs, *b.expr.args) if v is not None]
    return all(
        isinstance(v.type, TensorType) and v.type.dtype is not STRING and not v.dtype.is_float
        for v in (*graph.main.params, *values)
    )


def _near(found: Any, wanted: Any, whole: bool) -> bool:
    """Whether numbers agree; damaged weights may be of any size, so that rounding is relative."""
    if isinstance(wanted, list | tuple | type(None)):
        return True
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.kind not in "f":
        return not whole or bool((found == wanted).all())
    if not np.isfinite(found[np.abs(wanted) < _LARGE]).all():
        return False
    finite = np.isfinite(found) & np.isfinite(wanted)
    scale = np.abs(wanted[finite]).max(initial=1e-30)
    return bool((np.abs(found - wanted)[finite] <= 1e-2 * scale).all())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
