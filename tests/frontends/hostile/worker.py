"""Converts and compiles damaged models, one a line of input; what kills this process kills no test.

`python -m tests.frontends.hostile.worker FOLDER` reads lines such as `graph_def 17` and answers
each with one line of JSON: {"outcome": "ran" | "refused" | "fault", "detail": …}.
"""

from __future__ import annotations

import copy
import io
import json
import random
import resource
import signal
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import tilewright as tw
from tests.frontends.hostile import seeds
from tests.frontends.onnx.hostile.damage import damaged
from tests.frontends.onnx.hostile.worker import _inputs, _judged
from tests.frontends.tensorflow.files import encoded
from tilewright.frontends import read_model
from tilewright.support.errors import UserError

SECONDS: Final = 10
BYTES: Final = 3 << 30
_NUMBERS: Final = (0, 1, -1, 2, 7, 1 << 31, 10**6, 10**12, -(1 << 63), 0.5, None, "x", [], {}, True)


def graph_def(folder: Path, rng: random.Random) -> Path:
    """Bytes of the file, or fields that lie."""
    path = folder / "model.pb"
    path.write_bytes(damaged(seeds.graph_def(), rng) if rng.random() < 0.3 else _bent(rng))
    return path


def _bent(rng: random.Random) -> bytes:
    while True:
        fields = copy.deepcopy(seeds.graph_fields())
        for _ in range(rng.choice([1, 1, 2, 3])):
            bend(fields, rng)
        try:
            return encoded("GraphDef", fields)
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError):
            continue  # No message has such fields.


def saved_model(folder: Path, rng: random.Random) -> Path:
    files = dict(seeds.saved())
    which = rng.choice(sorted(files))
    for name, data in files.items():
        path = folder / "saved" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(damaged(data, rng) if name == which else data)
    return folder / "saved"


def keras_hdf5(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.h5"
    path.write_bytes(damaged(seeds.keras_hdf5(), rng))
    return path


def keras_archive(folder: Path, rng: random.Random) -> Path:
    """Bytes of the archive, bytes of a file inside it, or a configuration that lies."""
    data = seeds.keras_archive()
    path = folder / "model.keras"
    if rng.random() < 0.25:
        path.write_bytes(damaged(data, rng))
        return path
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    if rng.random() < 0.3:
        files["model.weights.h5"] = damaged(files["model.weights.h5"], rng)
    else:
        config = json.loads(files["config.json"])
        for _ in range(rng.choice([1, 1, 2, 3])):
            bend(config, rng)
        files["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def bend(config: Any, rng: random.Random) -> None:
    """Change one entry of a configuration."""
    places: list[tuple[Any, Any]] = []
    pending = [config]
    while pending:
        current = pending.pop()
        keys = list(current) if isinstance(current, dict) else range(len(current))
        places += [(current, k) for k in keys]
        pending += [current[k] for k in keys if isinstance(current[k], dict | list)]
    target, key = rng.choice(places)
    if rng.random() < 0.2:
        del target[key]
    else:
        other, name = rng.choice(places)
        target[key] = copy.deepcopy(rng.choice([*_NUMBERS, other[name]]))


KINDS: Final[dict[str, Callable[[Path, random.Random], Path]]] = {
    f.__name__: f for f in (graph_def, keras_archive, keras_hdf5, saved_model)
}


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    print("ready", flush=True)
    for line in sys.stdin:
        kind, number = line.split()
        path = KINDS[kind](folder, random.Random(int(number)))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome, detail = _outcome(path, int(number))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"outcome": outcome, "detail": detail}), flush=True)


def _outcome(path: Path, number: int) -> tuple[str, str]:
    """Every tenth is compiled and run, the others are converted alone."""
    try:
        if number % 10:
            read_model(path)
            return "ran", "only converted"
        model = tw.compile(path, threads=1, opt_level=number // 10 % 4)
        inputs = _inputs(model)
        return ("ran", "only compiled") if inputs is None else _judged(model, model.run(inputs))
    except UserError as error:
        return "refused", str(error)[:200]
    except BaseException as error:
        return "fault", f"{type(error).__name__}: {error}"[:2000]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
