"""Models out of files of both kinds: structure, names, shared and nested layers, messages."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tilewright as tw
from tests.frontends.keras.files import (
    archive,
    functional,
    hdf5,
    input_layer,
    layer,
    results,
    sequential,
)
from tilewright.frontends.keras import config, from_keras
from tilewright.graph import evaluate
from tilewright.support.errors import UserError

RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


W1, B1, W2 = random(5, 4), random(4), random(4, 3)
X = random(2, 5)
DENSE = [
    input_layer("x", 5),
    layer("Dense", "first", "x", units=4, activation="relu"),
    layer("Dense", "second", "first", units=3, use_bias=False),
]
WEIGHTS = {"layers/dense": [W1, B1], "layers/dense_1": [W2]}
WANTED = np.maximum(X @ W1 + B1, 0) @ W2


def test_a_model_runs_natively(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(archive(functional(DENSE, ["x"], ["second"]), WEIGHTS))
    model = tw.compile(path)
    assert [i.name for i in model.inputs] == ["x"]
    assert [o.name for o in model.outputs] == ["second"]
    np.testing.assert_allclose(model.run({"x": X})[0], WANTED, rtol=1e-5)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_bytes_of_an_archive(compression: int) -> None:
    data = archive(functional(DENSE, ["x"], ["second"]), WEIGHTS, compression)
    np.testing.assert_allclose(results(data, X)[0], WANTED, rtol=1e-5)


def test_entries_of_layers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a model of 10,000 layers they take a good part of the time."""
    kinds, before = list[str](), config._is_operation

    def counted(entry: Any, kind: str, inner: Any) -> bool:
        kinds.append(kind)
        return before(entry, kind, inner)

    monkeypatch.setattr(config, "_is_operation", counted)
    from_keras(archive(functional(DENSE, ["x"], ["second"]), WEIGHTS))
    assert kinds.count("Dense") == 2


def test_weights_that_are_stored_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(archive(functional(DENSE, ["x"], ["second"]), WEIGHTS))
    constants = [
        a.constant
        for b in from_keras(path).main.body
        for a in b.expr.args
        if a is not None and a.constant is not None
    ]
    assert any(c.shape == (5, 4) and not c.flags.owndata for c in constants)


def test_sequential_of_keras_3() -> None:
    layers = [DENSE[0], *({**e, "inbound_nodes": []} for e in DENSE[1:])]
    np.testing.assert_allclose(
        results(archive(sequential(*layers), WEIGHTS), X)[0], WANTED, rtol=1e-5
    )


def _old(entry: dict, *inputs: list) -> dict:
    return {k: v for k, v in entry.items() if k != "module"} | {"inbound_nodes": [list(inputs)]}


def test_old_files_name_their_weights() -> None:
    first, second = (
        _old(DENSE[1], ["x", 0, 0, {}]),
        _old(DENSE[2], ["first", 0, 0, {}]),
    )
    start = {**DENSE[0], "config": {**DENSE[0]["config"], "batch_input_shape": [None, 5]}}
    model = functional([start, first, second], ["x"], ["second"])
    named = {
        "first": {"first/bias:0": B1, "first/kernel:0": W1},
        "second": {"second/kernel:0": W2},
    }
    np.testing.assert_allclose(results(hdf5(model, named), X)[0], WANTED, rtol=1e-5)


def test_old_sequential_tells_its_input_in_the_first_layer() -> None:
    first = layer("Dense", "first", units=4, activation="relu", batch_input_shape=[None, 5])
    second = layer("Dense", "second", units=3, use_bias=False)
    named = {
        "first": {"first/kernel:0": W1, "first/bias:0": B1},
        "second": {"second/kernel:0": W2},
    }
    data = hdf5(sequential(first, second), named)
    assert from_keras(data).main.params[0].name == "first_input"
    np.testing.assert_allclose(results(data, X)[0], WANTED, rtol=1e-5)
    # Before version 2.2.3 the layers were all of its configuration.
    oldest = hdf5({"class_name": "Sequential", "config": [first, second]}, named)
    np.testing.assert_allclose(results(oldest, X)[0], WANTED, rtol=1e-5)


def test_a_shared_layer_has_one_set_of_weights() -> None:
    shared = layer("Dense", "shared", "a", units=4)
    shared["inbound_nodes"] += layer("Dense", "_", "b")["inbound_nodes"]
    join = layer("Concatenate", "join", ["shared:0", "shared:1"])
    model = functional([input_layer("a", 5), input_layer("b", 5), shared, join], "ab", ["join"])
    y = X[:, ::-1].copy()
    found = results(archive(model, {"layers/dense": [W1, B1]}), X, y)[0]
    np.testing.assert_allclose(found, np.concatenate([X @ W1 + B1, y @ W1 + B1], 1), rtol=1e-5)


def test_nested_models_count_the_call_that_made_them() -> None:
    inner = functional(DENSE, ["x"], ["second"], name="inner")
    called = inner | {"name": "inner"} | {"inbound_nodes": layer("_", "_", "z")["inbound_nodes"]}
    outer = functional([input_layer("z", 5), called], ["z"], ["inner:1"])
    weights = {f"layers/functional/{k}": v for k, v in WEIGHTS.items()}
    np.testing.assert_allclose(results(archive(outer, weights), X)[0], WANTED, rtol=1e-5)


def test_several_outputs_of_one_layer_have_names_of_their_own() -> None:
    model = functional([input_layer("x", 5)], ["x"], ["x", "x"])
    module = from_keras(archive(model, {}))
    names = module.main.outputs or [r.name for r in module.main.results]
    assert len(set(names)) == 2


def test_code_in_files_is_refused() -> None:
    entries = [DENSE[0], layer("Lambda", "mine", "x", function="x"), layer("Odd", "odd", "mine")]
    with pytest.raises(UserError, match="has operators that Tilewright does not know") as caught:
        from_keras(archive(functional(entries, ["x"], ["odd"]), {}))
    assert "it holds Python code, which is not run" in str(caught.value)
    assert "1 × Odd: layer odd (Odd)" in str(caught.value)


def test_a_subclassed_model_has_no_structure() -> None:
    config = {"module": "mine", "class_name": "Net", "config": {}}
    with pytest.raises(UserError, match="model of the class Net") as caught:
        from_keras(archive(config, {}))
    assert "model.export" in caught.value.remedy


def test_a_file_of_weights_alone_is_refused() -> None:
    import io

    import h5py

    made = io.BytesIO()
    h5py.File(made, "w").close()
    with pytest.raises(UserError, match="holds weights without a model"):
        from_keras(made.getvalue())


def test_links_out_of_the_file_are_not_followed(tmp_path: Path) -> None:
    model = functional(DENSE, ["x"], ["second"])
    data = hdf5(model, {"first": {"k": W1}, "second": {"k": W2}})
    made = io.BytesIO(data)
    with h5py.File(made, "a") as file:
        del file["model_weights/second"]
        file["model_weights/second"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
    with pytest.raises(UserError, match="link second to another place"):
        from_keras(made.getvalue())


def test_names_of_layers_do_not_lead_through_links(tmp_path: Path) -> None:
    """A name may be a path in the file; a link on the way would lead out of it."""
    outside = tmp_path / "outside.h5"
    outside.write_bytes(hdf5({}, {"second": {"k": W2}}))
    layers = [*DENSE[:2], layer("Dense", "way/second", "first", units=3, use_bias=False)]
    model = functional(layers, ["x"], ["way/second"])
    made = io.BytesIO(hdf5(model, {"first": {"k": W1, "b": B1}}))
    with h5py.File(made, "a") as file:
        file["model_weights/way"] = h5py.ExternalLink(str(outside), "/model_weights")
    with pytest.raises(UserError, match="link way to another place"):
        from_keras(made.getvalue())


def test_a_users_converter_comes_first() -> None:
    from tilewright.frontends.keras.table import TABLE

    TABLE.register("Twice", lambda n: n[0] + n[0])
    try:
        model = functional([DENSE[0], layer("Twice", "it", "x")], ["x"], ["it"])
        np.testing.assert_allclose(results(archive(model, {}), X)[0], X + X)
    finally:
        TABLE.unregister("Twice")


def test_shapes_refine_inputs() -> None:
    data = archive(functional(DENSE, ["x"], ["second"]), WEIGHTS)
    assert str(from_keras(data, {"x": [7, 5]}).main.params[0].type) == "f32[7, 5]"
    with pytest.raises(UserError, match="shapes names the input y"):
        from_keras(data, {"y": [7, 5]})


def test_weights_that_lie_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    with h5py.File(tmp_path / "chunks.h5", "w") as file:
        file.create_dataset("layers/dense/vars/0", data=W1, chunks=(2, 2), compression="gzip")
        file["layers/dense/vars/1"] = B1
        file["layers/dense_1/vars/0"] = W2
    path.write_bytes(_with_weights((tmp_path / "chunks.h5").read_bytes()))
    np.testing.assert_allclose(evaluate(from_keras(path), [X])[0], WANTED, rtol=1e-5)


def test_weights_in_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(W1.tobytes())
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["it"] = W1
    virtual = h5py.VirtualLayout(shape=W1.shape, dtype=W1.dtype)
    virtual[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "it", shape=W1.shape)

    def external(group: Any) -> None:
        outside = [(str(tmp_path / "elsewhere"), 0, W1.nbytes)]
        group.create_dataset("0", W1.shape, W1.dtype, external=outside)

    for write in (external, lambda group: group.create_virtual_dataset("0", virtual)):
        with h5py.File(tmp_path / "weights.h5", "w") as file:
            write(file.create_group("layers/dense/vars"))
            file["layers/dense/vars/1"] = B1
            file["layers/dense_1/vars/0"] = W2
        data = _with_weights((tmp_path / "weights.h5").read_bytes())
        with pytest.raises(UserError, match="its data in other files"):
            from_keras(data)


def _with_weights(weights: bytes) -> bytes:
    """The archive of a model whose weights are this HDF5 file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        out.writestr("metadata.json", json.dumps({"keras_version": "3.0.0"}))
        out.writestr("config.json", json.dumps(functional(DENSE, ["x"], ["second"])))
        out.writestr("model.weights.h5", weights)
    return made.getvalue()
