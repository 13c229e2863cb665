"""The program that runs artifacts without Python, beside Python's own answers."""

from __future__ import annotations

import hashlib
import json
import random as randomness
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.device_runtime.built import Runtime, rewritten, saved
from tests.manifest_edits import edited, edits
from tests.network_cases import CASES, Case
from tests.test_compile import random, weights
from tilewright.cli.app import main
from tilewright.codegen.llvm.libc import C_FUNCTIONS
from tilewright.device_runtime import SOURCE, build_runtime
from tilewright.graph import Builder

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
SAMPLE = ("convnet", "transformer", "lstm", "movement")
EXAMPLES = Path(__file__).parents[2] / "examples" / "device"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    program = tmp_path_factory.mktemp("runtime") / "tilewright-run"
    build_runtime(program, compiler=["cc"])
    return Runtime(program)


def _dense() -> object:
    b = Builder()
    b.output(b.dense(b.input("x", "f32", ("n", 24)), weights(10, 24), weights(10)))
    return b.build()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(_dense(), "llvm", tmp_path_factory.mktemp("artifact"))[1]


@pytest.mark.parametrize("case", [c for c in CASES if c.name in SAMPLE], ids=str)
def test_answers_are_those_of_python(case: Case, runtime: Runtime, tmp_path: Path) -> None:
    model, path = saved(case.graph(), "llvm", tmp_path)
    wanted = model.run(list(case.inputs))
    for got, want in zip(runtime.outputs(path, model, case.inputs), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_outputs_whose_sizes_the_run_decides(runtime: Runtime, tmp_path: Path) -> None:
    b = Builder()
    b.output(b.non_zero(b.input("x", "f32", ("n",))))
    model, path = saved(b.build(), "llvm", tmp_path)
    x = np.array([0, 3, 0, 2], np.float32)
    (got,) = runtime.outputs(path, model, [x])
    np.testing.assert_array_equal(got, model(x))


def test_it_tells_what_a_model_takes_and_times_it(
    runtime: Runtime, artifact: Path, tmp_path: Path
) -> None:
    told = runtime.call(artifact).stdout
    assert "input  x: float32[n, 24]" in told
    assert "target llvm" in told
    np.save(tmp_path / "x.npy", random(3, 24))
    timed = runtime.call(
        artifact, "--input", f"x={tmp_path / 'x.npy'}", "--time", "--repeat", "3"
    ).stdout
    assert timed.startswith("median ")
    assert " us, 3 x " in timed


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 25), np.float32), r"input x: float32\[n, 24\] was given as float32\[3, 25\]"),
        (np.zeros((3, 24)), "does not hold elements of the type float32"),
        (np.zeros((24, 3), np.float32).T, "not in row-major order"),
    ],
)
def test_inputs_that_do_not_fit(
    runtime: Runtime, artifact: Path, tmp_path: Path, array: np.ndarray, message: str
) -> None:
    np.save(tmp_path / "x.npy", array)
    done = runtime.call(artifact, "--input", f"x={tmp_path / 'x.npy'}")
    _require_refusal(done, message)


def test_a_missing_input_and_a_foreign_one(runtime: Runtime, artifact: Path) -> None:
    _require_refusal(runtime.call(artifact, "--input", "y=a.npy"), "no input for --input y=a.npy")
    _require_refusal(
        runtime.call(artifact, "--input", "x=a.npy"), "cannot read a.npy: No such file"
    )
    assert runtime.call(artifact, "--what").returncode == 2


def test_code_for_another_machine_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    other = "x86-64" if tw.Target.of("llvm").arch == "aarch64" else "cortex-a72"
    _, path = saved(_dense(), f"llvm -mcpu={other}", tmp_path)
    _require_refusal(runtime.call(path), "nothing that this machine can run: it is for ")


def _require_refusal(done: subprocess.CompletedProcess[str], message: str = "") -> None:
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("tilewright-run: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert re.search(message, done.stderr), done.stderr


# ---- hostile files ------------------------------------------------------------------------------


def test_damaged_files_are_refused(sanitized: Runtime, artifact: Path, tmp_path: Path) -> None:
    """Changed bytes all over the file, and files that are cut short."""
    data, rng = artifact.read_bytes(), randomness.Random(1)
    padding = refused = 0
    for k in range(100):
        made = bytearray(data)
        at = k * len(data) // 100 + rng.randrange(len(data) // 100)
        made[at] ^= 1 << rng.randrange(8)
        if k % 4 == 0:
            made = made[:at]
        path = tmp_path / "damaged.twm"
        path.write_bytes(made)
        done = sanitized.call(path, leaks=k % 25 == 0)
        if done.returncode == 0:
            padding += 1  # bytes between members, and texts for people, are of no account
        else:
            _require_refusal(done)
            refused += 1
    assert refused > 50, (refused, padding)


def test_object_code_that_lies(sanitized: Runtime, artifact: Path, tmp_path: Path) -> None:
    """Damaged object code under the right checksums and digests, so that the linker sees it."""
    with zipfile.ZipFile(artifact) as file:
        manifest = file.read("manifest.json").decode()
        host = _host_of(manifest)
        code = file.read(host)
    rng = randomness.Random(2)
    heads = [*range(64), *range(len(code) - 64 * 12, len(code))]
    for k in range(50):
        made = bytearray(code)
        for _ in range(1 + rng.randrange(3)):
            made[rng.choice(heads)] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        name = f"objects/{hashlib.sha256(made).hexdigest()}.o"
        path = tmp_path / "lying.twm"
        rewritten(artifact, path, {host: (name, bytes(made))}, manifest.replace(host, name))
        done = sanitized.call(path, leaks=k % 25 == 0)
        assert done.returncode in (0, 1), done.stderr
        if done.returncode:
            _require_refusal(done)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"dtype": "float32"', '"dtype": "float64"', "what does not hold for its code"),
        ('"version": 1', '"version": 2', "format version 2"),
        ('"kind": "compiled"', '"kind": "hosted"', "needs Python"),
        ('"direct": [', '"direct": [9999999999, ', "where it comes from"),
        ('"dims": [', '"dims": ["m", ', "no input tells the dimension m"),
        ('"builds": [', '"builds": [[', "not JSON"),
        ('"offset": 0', '"offset": 64000000', "params.bin"),
    ],
)
def test_manifests_that_lie(
    sanitized: Runtime, artifact: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    with zipfile.ZipFile(artifact) as file:
        manifest = file.read("manifest.json").decode()
    assert old in manifest
    path = tmp_path / "lying.twm"
    rewritten(artifact, path, {}, manifest.replace(old, new))
    _require_refusal(sanitized.call(path), message)


def test_manifests_with_any_edit(sanitized: Runtime, artifact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as file:
        manifest = json.loads(file.read("manifest.json"))
    path = tmp_path / "edited.twm"
    for k, edit in enumerate(randomness.Random(3).sample(edits(manifest), 100)):
        rewritten(artifact, path, {}, json.dumps(edited(manifest, edit)))
        done = sanitized.call(path, leaks=k % 25 == 0)
        if done.returncode != 0:  # some fields are for people
            _require_refusal(done)


def _host_of(manifest: str) -> str:
    return json.loads(manifest)["builds"][0]["model"]["objects"][0]


# ---- the library --------------------------------------------------------------------------------


@pytest.mark.parametrize("example", ["run.c", "run.cpp"])
def test_examples(example: str, artifact: Path, tmp_path: Path) -> None:
    compiler = {"run.c": "cc", "run.cpp": "c++"}[example]
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    library = tmp_path / "libtilewright.a"
    written = build_runtime(library, compiler=["cc"])
    assert [p.name for p in written] == ["libtilewright.a", "tilewright.h", "tilewright.hpp"]
    program = tmp_path / "run"
    words = [compiler, "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{tmp_path}"]
    command = [*words, str(EXAMPLES / example), str(library), "-lm", "-lpthread"]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=120)
    done = subprocess.run([str(program), str(artifact)], capture_output=True, text=True, timeout=60)
    got = [float.fromhex(line) for line in done.stdout.splitlines() if line.lstrip("-")[:2] == "0x"]
    want = tw.load(artifact)(np.ones((1, 24), np.float32)).ravel()
    np.testing.assert_array_equal(np.array(got, np.float32), want)


def has_rust() -> bool:
    """Whether there is a compiler that runs: `rustc` may be a command that would fetch one."""
    found = shutil.which("rustc")
    words = [found or "", "--version"]
    return bool(found) and not subprocess.run(words, capture_output=True, timeout=60).returncode


@pytest.mark.skipif(not has_rust(), reason="there is no Rust compiler")
def test_an_example_in_rust(artifact: Path, tmp_path: Path) -> None:
    build_runtime(tmp_path / "libtilewright.a", compiler=["cc"])
    words = ["rustc", "-D", "warnings", "-L", str(tmp_path), "-l", "static=tilewright", "-l", "m"]
    command = [*words, str(EXAMPLES / "run.rs"), "-o", str(tmp_path / "run")]
    built = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert built.returncode == 0, built.stderr
    run = [str(tmp_path / "run")]
    done = subprocess.run([*run, str(artifact)], capture_output=True, text=True, timeout=60)
    got = np.array([float(word) for word in done.stdout.splitlines()[1:]], np.float32)
    want = tw.load(artifact)(np.ones((1, 24), np.float32)).ravel()
    np.testing.assert_array_equal(got, want)
    done = subprocess.run([*run, "none.twm"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "cannot load none.twm" in done.stderr


def test_the_command_takes_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["export", "a.onnx", "--format", "runtime", "-o", str(tmp_path / "r")]) != 0
    assert "leave the model out" in capsys.readouterr().err
    assert main(["export"]) != 0
    assert "name a model" in capsys.readouterr().err


def test_systems_without_a_runtime(tmp_path: Path) -> None:
    with pytest.raises(tw.UserError, match="there is no runtime for"):
        build_runtime(tmp_path / "r", "llvm -mtriple=x86_64-pc-windows-gnu")


@pytest.mark.parametrize(
    "target",
    [
        *(f"-mtriple=armv7-linux-gnueabihf -mcpu=cortex-{c}" for c in ("a7", "a9", "a15", "a53")),
        *(f"-mcpu={cpu}" for cpu in ("cortex-a53", "cortex-a72", "cortex-a76", "neoverse-v1")),
        *(f"-mcpu={cpu}" for cpu in ("x86-64", "haswell", "skylake-avx512", "znver4")),
        *(f"-mcpu={cpu}" for cpu in ("rv64gc", "rv64gcv")),
    ],
)
def test_features_of_processors_are_known(target: str) -> None:
    """What the program has not heard of, it takes for missing: then it runs nothing there."""
    text = (SOURCE / "features.c").read_text(encoding="utf-8")
    known = {name for name in tw.Target.of(f"llvm {target}").features if f'{{"{name}",' in text}
    missing = set(tw.Target.of(f"llvm {target}").features) - known
    assert not {name for name in missing if not name.startswith("prefer-")}


def test_all_that_code_asks_of_a_system_is_there() -> None:
    text = (SOURCE / "system.c").read_text(encoding="utf-8")
    missing = [name for name in C_FUNCTIONS if f"FUNCTION({name})" not in text]
    assert not missing
