"""Files that somebody made to do harm: each is a model, in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx
from onnx import helper

from tests.frontends.hostile.formats import OUTSIDE
from tests.frontends.onnx.hostile.seeds import nested, network, program, with_files
from tests.frontends.onnx.models import info, make, node, out

SECRET: Final = "secret.bin"

IMPORTS = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
X = info("x", shape=["n", 2])


# ---- graphs -------------------------------------------------------------------------------------


def cycles() -> Iterator[Any]:
    yield make([node("Relu", ["y"], ["y"])], [X], ["y"])
    yield make([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], [X], ["a"])
    ring = [node("Neg", [f"v{k}"], [f"v{(k + 1) % 500}"]) for k in range(500)]
    yield make(ring, [X], ["v0"])
    body = helper.make_graph([node("Add", ["x", "y"], ["t"])], "then", [], [out("t")])
    yield make([node("If", ["c"], ["y"], then_branch=body, else_branch=body)], [X], ["y"])


def recursion() -> Iterator[Any]:
    def function(name: str, *calls: str) -> Any:
        names = ["a", *(f"v{k}" for k in range(len(calls) - 1)), "b"]
        nodes = [
            node(op, [names[k]], [names[k + 1]], domain="" if op == "Exp" else "my")
            for k, op in enumerate(calls)
        ]
        return helper.make_function("my", name, ["a"], ["b"], nodes, IMPORTS)

    def calling(name: str, *functions: Any) -> Any:
        made = [node(name, ["x"], ["y"], domain="my")]
        return make(made, [X], ["y"], functions=functions, domains={"my": 1})

    yield calling("F", function("F", "F"))
    yield calling("F", function("F", "G"), function("G", "Exp", "F"))
    yield calling("F", function("F", "Exp"), function("F", "Exp", "Exp"))
    # Each calls the next one many times.
    tower = [function(f"F{k}", *[f"F{k + 1}"] * 12) for k in range(12)]
    yield calling("F0", *tower, function("F12", "Exp"))
    # One calls the next, too deep.
    stairs = [function(f"F{k}", f"F{k + 1}") for k in range(400)]
    yield calling("F0", *stairs, function("F400", "Exp"))


def depths() -> Iterator[Any]:
    # Protocol buffers end at about thirty.
    for depth, both in ((9, True), (12, False), (30, False)):
        leaf = helper.make_graph([node("Neg", ["x"], ["t"])], "g", [], [out("t")])
        graph = leaf
        for _ in range(depth):
            other = graph if both else leaf
            made = node("If", ["c"], ["t"], then_branch=graph, else_branch=other)
            graph = helper.make_graph([made], "g", [], [out("t")])
        yield make(graph.node, [X, info("c", "bool")], ["t"])
    # A long chain, and a wide sum.
    chain = [node("Neg", [f"v{k}" if k else "x"], [f"v{k + 1}"]) for k in range(3000)]
    yield make(chain, [X], ["v3000"])
    yield make([node("Sum", ["x"] * 3000, ["y"])], [X], ["y"])


def sizes() -> Iterator[Any]:
    huge = [1 << 31, (1 << 63) - 1]
    for size in (1 << 20, 1 << 31, (1 << 62) + 1):
        shape = {"s": np.array([size, size], np.int64)}
        yield make([node("ConstantOfShape", ["s"], ["y"])], [X], ["y"], shape)
        yield make([node("Expand", ["x", "s"], ["y"])], [info("x", shape=[1, 1])], ["y"], shape)
        yield make([node("Tile", ["x", "s"], ["y"])], [X], ["y"], shape)
        yield make([node("Neg", ["x"], ["y"])], [info("x", shape=[size, size, size])], ["y"])
        pads = {"p": np.array([0, 0, size, size], np.int64)}
        yield make([node("Pad", ["x", "p"], ["y"])], [X], ["y"], pads)
        scales = {"s": np.array([1, 1, size, size], np.float32)}
        image = info("x", shape=[1, 1, 2, 2])
        yield make([node("Resize", ["x", "", "s"], ["y"])], [image], ["y"], scales)
        pool = node("MaxPool", ["x"], ["y"], kernel_shape=[size, size], pads=[1, size, 1, size])
        yield make([pool], [image], ["y"])
        yield make([node("EyeLike", ["x"], ["y"], k=size)], [X], ["y"])
        yield make(
            [node("OneHot", ["i", "s0", "v"], ["y"])],
            [info("i", "int64", [2])],
            ["y"],
            {"s0": np.array(size), "v": np.array([0, 1], np.float32)},
        )
        limit = {"a": np.array(0), "b": np.array(size), "c": np.array(1)}
        yield make([node("Range", ["a", "b", "c"], ["y"])], [X], ["y"], limit)
    for size in huge:
        model = network()
        model.graph.initializer[0].dims[0] = size
        yield model
    # Products of sizes that are known only later do not fit into a machine word.
    twice = [node("Tile", ["x", "s"], ["t"]), node("Tile", ["t", "s"], ["y"])]
    places = {"s": np.array([1 << 31] * 2), "z": np.array([0, 0]), "o": np.array([1, 1])}
    yield make(twice, [X], ["y"], places)
    for count in (16, 20, 30, 31):
        places["s"] = np.array([1 << count] * 2)
        # Only what is small in the end leaves the model.
        yield make([*twice, node("Slice", ["y", "z", "o"], ["p"])], [X], ["p"], places)
        yield make([*twice, node("ReduceMax", ["y"], ["p"])], [X], ["p"], places)
        late = [node("NonZero", ["x"], ["i"]), node("Tile", ["i", "s"], ["t"])]
        yield make([*late, node("ReduceMax", ["t"], ["p"])], [X], ["p"], places)
    yield make([node("Neg", ["x"], ["y"])], [info("x", shape=[1] * 70)], ["y"])
    loop = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Concat", ["u", "u"], ["v"], axis=0)],
        "body",
        [out("i"), out("c"), out("u")],
        [out("d"), out("v")],
    )
    count = {"count": np.array(60)}  # It doubles with each trip.
    yield make([node("Loop", ["count", "", "x"], ["y"], body=loop)], [X], ["y"], count)


def names() -> Iterator[Any]:
    twice = [node("Neg", ["x"], ["y"]), node("Relu", ["x"], ["y"])]
    yield make(twice, [X], ["y"])
    yield make([node("Neg", ["x"], ["x"])], [X], ["x"])
    yield make([node("Neg", ["x"], ["y"])], [X, X], ["y"])
    yield make([node("Neg", ["x"], ["y"])], [X], ["y", "y"])
    yield make([node("Neg", ["x"], [""])], [X], [""])
    model = network()
    model.graph.initializer.append(model.graph.initializer[0])
    yield model
    for name in [t.name for t in network().graph.initializer]:
        model = network()
        kept = [t for t in model.graph.initializer if t.name != name]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        yield model
    for text in ("a\0b", "a" * 100_000, "%s{}{0}", "\u202e\n\t"):
        yield make([node("Neg", ["x"], [text])], [X], [text])


def types() -> Iterator[Any]:
    for kind in ("sequence_type", "optional_type", "map_type", "sparse_tensor_type"):
        model = network()
        getattr(model.graph.input[0].type, kind).SetInParent()
        yield model
    for number in (0, 8, 14, 17, 23, 99, -1):
        model = network()
        model.graph.input[0].type.tensor_type.elem_type = number
        yield model
    for make_model in (network, program, nested):
        for kind in range(15):
            model = make_model()
            for n in model.graph.node:
                for a in n.attribute:
                    a.type = cast("Any", kind)
            yield model


# ---- files --------------------------------------------------------------------------------------


def located(folder: Path, **entries: str) -> Any:
    model = with_files(folder)
    for e in model.graph.initializer[0].external_data:
        e.value = entries.get(e.key, e.value)
    return model


def files(folder: Path) -> Iterator[Any]:
    outside = folder.parent / OUTSIDE
    for made in folder.iterdir():
        made.rmdir() if made.is_dir() and not made.is_symlink() else made.unlink()
    os.symlink(outside / SECRET, folder / "link.bin")
    os.symlink(outside, folder / "linked")
    os.symlink("loop.bin", folder / "loop.bin")
    os.mkfifo(folder / "pipe.bin")
    (folder / "empty.bin").write_bytes(b"")
    (folder / "folder.bin").mkdir()
    places = [str(outside / SECRET), f"../{OUTSIDE}/{SECRET}", f"x/../../{OUTSIDE}/{SECRET}"]
    places += ["link.bin", f"linked/{SECRET}", "loop.bin", "pipe.bin", "empty.bin", "folder.bin"]
    places += [
        "",
        ".",
        "..",
        "/",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/mem",
        "no.bin",
        "a" * 9999,
    ]
    places += ["weights.bin/..", "\udcff", "C:\\x", "file:///etc/passwd", "~/x", "$HOME"]
    for place in places:
        try:
            yield located(folder, location=place)
        except (UnicodeEncodeError, ValueError):
            continue
    for number in ("-1", "1", "36", "37", str(1 << 62), str(1 << 64), "1e3", "٣", " 4", "", "x"):
        yield located(folder, offset=number)
        yield located(folder, length=number)
    model = with_files(folder)
    model.graph.initializer[0].dims[:] = [1 << 20, 1 << 20]
    yield model
    model = with_files(folder)
    model.graph.initializer[0].data_type = onnx.TensorProto.STRING
    yield model


GRAPHS: Final[list[Callable[[], Iterator[Any]]]] = [cycles, recursion, depths, sizes, names, types]


def attacks(folder: Path) -> Iterator[tuple[str, Any]]:
    """All of them with the names of their kinds; files are made in `folder`."""
    for kind in GRAPHS:
        yield from ((kind.__name__, model) for model in kind())
    yield from (("files", model) for model in files(folder))
