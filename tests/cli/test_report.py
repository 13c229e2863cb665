"""The report: one page that needs nothing, and works in a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def page(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tilewright.cli import main

    path = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", str(model), "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def data(page: Path) -> Any:
    return read(page)


def read(page: Path) -> Any:
    found = re.search(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_nothing_is_fetched(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"""(?:src|href)=["']([^"']+)|url\(([^)]+)\)|(https?://[^"'\s]+)""", text)
    fetched = {a or b or c for a, b, c in links} - {"http://www.w3.org/2000/svg"}
    assert fetched <= {"#kernels"}


def test_both_graphs_are_there(data: Any) -> None:
    before, after = ([n["label"] for n in data["graphs"][k]["nodes"]] for k in ("before", "after"))
    assert before == ["x", "matmul", "add", "relu", "matmul", "y"]
    assert after == ["x", "matmul + add + relu", "matmul", "y"]
    edges = [(e["from"], e["to"]) for e in data["graphs"]["before"]["edges"]]
    assert edges == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    origin = data["graphs"]["after"]["nodes"][1]["origin"]
    assert "first" in origin and "activation" in origin


def test_every_kernel_has_all_levels(data: Any) -> None:
    assert len(data["kernels"]) == 2
    for kernel in data["kernels"]:
        assert f"def {kernel['name']}(" in kernel["loops"]
        assert f"def {kernel['name']}(" in kernel["scheduled"]
        assert f"@{kernel['name']}(" in kernel["llvm"]
        assert f"{kernel['name']}:" in kernel["asm"]
        assert any(n["kernel"] == kernel["name"] for n in data["graphs"]["after"]["nodes"])


def test_the_memory_plan_holds_what_lives_between_kernels(data: Any) -> None:
    memory = data["memory"]
    hidden = next(p for p in memory["places"] if p["name"] == "hidden")
    assert (hidden["first"], hidden["last"]) == (0, 1)
    assert hidden["offset"] + hidden["size"] <= memory["size"]
    assert memory["usual"], "n is symbolic"


def test_the_page_works_in_a_browser(page: Path, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium or Chrome is installed")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command = [browser, *flags, "--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run(
        [*command, f"{page.as_uri()}#selftest"], capture_output=True, text=True, timeout=120
    )
    found = re.search(r'<html[^>]*data-status="([^"]*)"', done.stdout)
    assert found, done.stderr
    assert found[1] == "ok"


def test_a_run_is_measured(data: Any) -> None:
    run = data["profile"]
    assert [e["kernel"] for e in run["events"]] == [c["kernel"] for c in data["calls"]]
    assert all(e["start"] + e["seconds"] <= run["total"] * 1.001 for e in run["events"])
    assert all(k["flops"] > 0 and k["seconds"] > 0 for k in data["kernels"])
    assert run["roof"]["flops"] > 0


def test_nothing_is_run_where_nobody_wants_it(
    tilewright, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.models.native import NativeModel

    monkeypatch.setattr(NativeModel, "profile", None)
    assert tilewright("report", model, "-o", tmp_path / "r.html", "--no-profile").code == 0


def test_what_a_gpu_runs_at_the_same_time_is_told(tilewright, tmp_path: Path) -> None:
    file = tmp_path / "branches.onnx"
    onnx.save(recurrent_branches(), str(file))
    options = ("--target", "simt", "--no-profile", "-o", tmp_path / "r.html")
    assert tilewright("report", file, *options).code == 0
    told = read(tmp_path / "r.html")["launches"]
    assert told["chain"] < told["calls"]
    (merged,) = told["merged"]
    assert "scan" in merged["name"] or "lstm" in merged["name"]
    assert merged["before"] >= 5


def test_a_processor_launches_nothing(data: Any) -> None:
    assert data["launches"] is None


def recurrent_branches() -> onnx.ModelProto:
    """An LSTM of five steps, and beside it a product of the same input."""
    random = np.random.default_rng(0)
    arrays = {"w": (1, 32, 8), "r": (1, 32, 8), "v": (8, 8)}
    weights = [
        numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n)
        for n, s in arrays.items()
    ]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["states"], hidden_size=8),
        helper.make_node("MatMul", ["x", "v"], ["beside"]),
        helper.make_node("Softmax", ["beside"], ["shares"]),
        helper.make_node("ReduceSum", ["states"], ["total"], keepdims=0),
        helper.make_node("Mul", ["total", "shares"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 2, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "branches", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
