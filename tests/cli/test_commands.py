"""Commands that need no model, and what all have in common."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frontends.darknet import networks as nets
from tilewright.cli.app import COMMANDS


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_help_has_examples(tilewright, command) -> None:
    outcome = tilewright(command.name, "--help")
    assert outcome.code == 0
    assert f"tilewright {command.name}" in outcome.out.partition("examples:")[2]


def test_no_command_shows_them_all(tilewright) -> None:
    outcome = tilewright()
    assert outcome.code == 2
    assert all(f"\n    {command.name}" in outcome.err for command in COMMANDS)


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from tilewright.cli import main; main(['--help']); "
        "print(*sorted({'numpy', 'llvmlite', 'onnx', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == ""


def test_doctor_tries_a_kernel(tilewright) -> None:
    outcome = tilewright("doctor", "--json")
    assert outcome.code == 0
    assert {c["what"]: c["ok"] for c in outcome.json["checks"]} == {
        "compile and run a kernel": True,
        "cache on disk": True,
    }
    assert outcome.json["packages"]["numpy"]


def test_doctor_lists_the_operators_of_a_front_end(tilewright) -> None:
    found = tilewright("doctor", "--operators", "tflite", "--json").json["operators"]
    assert {"CONV_2D", "SOFTMAX"} <= set(found)
    assert "aten.convolution" in tilewright("doctor", "--operators", "torch").out
    refused = tilewright("doctor", "--operators", "tflight")
    assert refused.code == 3
    assert "tflite" in refused.err


def test_weights_lie_in_a_file_of_their_own(tilewright, tmp_path: Path) -> None:
    sections = [nets.conv(4), nets.pool(), nets.linear(3)]
    (tmp_path / "net.cfg").write_text(nets.cfg_text(sections, 8, 8))
    (tmp_path / "other.bin").write_bytes(nets.weights(sections, 8, 8))
    given = ("--params", tmp_path / "other.bin")
    made = tilewright("compile", tmp_path / "net.cfg", *given, "-o", tmp_path / "net.twm")
    assert made.code == 0
    assert tilewright("compare", tmp_path / "net.cfg", *given, "--fill", "random").code == 0
    missing = tilewright("run", tmp_path / "net.cfg", "--params", tmp_path / "none.bin")
    assert missing.code == 3
    assert "none.bin" in missing.err


def test_the_cache_is_shown_and_cleared(
    tilewright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.support.cache import default_cache

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    default_cache().put("a" * 64, b"code")
    assert tilewright("cache", "info", "--json").json["entries"] == 1
    assert "1 entries removed" in tilewright("cache", "clear").out
    assert tilewright("cache", "info", "--json").json["entries"] == 0


def test_bench_measures_in_every_setting(tilewright, model: Path) -> None:
    outcome = tilewright(
        "bench", model, "--threads", "1,2", "--batch", "1,4", "--seconds", 0.01, "--json",
        "--vs", "onnxruntime",
    )  # fmt: skip
    rows = outcome.json["results"]
    assert {(r["engine"], r["threads"], r["batch"]) for r in rows} == {
        (engine, threads, batch)
        for engine in ("tilewright", "onnxruntime")
        for threads in (1, 2)
        for batch in (1, 4)
    }
    assert all(r["least"] <= r["p50"] <= r["p90"] <= r["p99"] for r in rows)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import lib_of_it.core", "lib_of_it is missing (pip install lib_of_it)"),
        ("raise RuntimeError('wrong\\nbuild')", "openvino cannot be imported: wrong"),
    ],
)
def test_bench_says_which_peer_is_missing_in_one_line(
    tilewright, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, said: str
) -> None:
    (tmp_path / "openvino.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    outcome = tilewright("bench", model, "--seconds", 0.01, "--vs", "openvino", "--json")
    assert outcome.err == f"without openvino: {said}\n"
    assert [r["engine"] for r in outcome.json["results"]] == ["tilewright"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_all_commands(tilewright, shell: str) -> None:
    script = tilewright("completion", shell).out
    assert all(command.name in script for command in COMMANDS)
    assert "print-top" in script


def test_bash_completes(tilewright, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    script = tilewright("completion", "bash").out
    asked = 'COMP_WORDS=(tilewright com); COMP_CWORD=1; _tilewright; echo "${COMPREPLY[@]}"'
    done = subprocess.run([bash, "-c", script + asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["compile", "compare", "completion"]


def test_plain_text_without_a_terminal(tilewright) -> None:
    assert "\x1b" not in tilewright("cache").out


def test_results_are_json(tilewright) -> None:
    assert json.loads(tilewright("cache", "--json").out)["enabled"] in (True, False)
