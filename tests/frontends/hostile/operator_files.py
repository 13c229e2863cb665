"""Files that hold a model of one operator, by the front end that reads them."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any, Final

import numpy as np

from tests.frontends.hostile.operators import Drawn, value
from tilewright.frontends.tflite import schema

#: A file, its weights where these are a file of their own, and shapes that it does not tell.
Files = tuple[bytes, bytes | None, dict[str, Any]]
_MANY: Final = 100
_IMAGE: Final = (1, 3, 6, 6)


def _module(name: str) -> Any:
    return import_module(f"tests.frontends.{name}")


def tensorflow(drawn: Drawn, _: random.Random) -> Files:
    made = _module("tensorflow.files")
    nodes = [
        made.const(x.name, x.array)
        if x.constant
        else made.placeholder(x.name, *x.array.shape, dtype=x.array.dtype.name)
        for x in drawn.operands
    ]
    names = [x.name for x in drawn.operands]
    attrs = {k: made.kind("int32") if v == "float32" else v for k, v in drawn.attrs.items()}
    attrs = {k: v for k, v in attrs.items() if k not in ("op", "name")}
    nodes.append(made.node(drawn.op, "it", *names, **attrs))
    return made.frozen(*nodes), None, {}


def tflite(drawn: Drawn, rng: random.Random) -> Files:
    w = _module("tflite.writer").Writer()
    scale = rng.choice([None, None, 0.1])
    numbers = [
        w.constant(x.array, scale=scale)
        if x.constant
        else w.input(x.array.dtype.name, x.array.shape, scale=scale)
        for x in drawn.operands
    ]
    like = rng.choice(drawn.operands).array
    count = rng.choice([1, 1, 1, 2, 3])
    outs = [w.tensor(like.dtype.name, like.shape, scale=scale) for _ in range(count)]
    options = {k: _option(f.form, drawn, rng) for k, f in schema.options_of(drawn.op).items()}
    w.op(drawn.op, numbers, outs, **options)
    return w.model(outs), None, {}


def _option(form: str, drawn: Drawn, rng: random.Random) -> Any:
    if form == "s":
        return rng.choice([*drawn.words, ""])
    if form.endswith("*"):
        return [rng.randrange(-2, 5) for _ in range(rng.randrange(5))]
    low = 0 if form in "IB?" else -1
    return rng.randrange(low, 2 if form == "?" else 5)


def onnx(drawn: Drawn, rng: random.Random) -> Files:
    made = _module("onnx.models")
    outs = [f"y{k}" for k in range(rng.choice([1, 1, 1, 2, 3]))]
    attrs = {k: v for k, v in drawn.attrs.items() if v != [] and k not in ("name", "domain")}
    names = [x.name if rng.random() < 0.95 else "" for x in drawn.operands]
    node = made.node(drawn.op, names, outs, domain=drawn.domain, **attrs)
    infos = [made.info(x.name, x.array.dtype, x.array.shape) for x in drawn.inputs]
    constants = {x.name: x.array for x in drawn.operands if x.constant}
    domains = {drawn.domain: rng.choice([1, 3])} if drawn.domain else {}
    opset = rng.choice([7, 11, 13, 18, 22])
    model = made.make([node], infos, outs, constants, opset=opset, domains=domains)
    return model.SerializeToString(), None, {}


def mxnet(drawn: Drawn, rng: random.Random) -> Files:
    net = _module("mxnet.networks").Net()
    inputs = [net.var(x.name, x.array if x.constant else None) for x in drawn.operands]
    attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in drawn.attrs.items()}
    attrs = {k: v for k, v in attrs.items() if k not in ("op", "name", "inputs")}
    head = net.node(drawn.op, *inputs, **attrs)
    heads = [(head, k) for k in range(rng.choice([1, 1, 2]))]
    text, params = net.files(*heads)
    return text, params, drawn.shapes


def keras(drawn: Drawn, rng: random.Random) -> Files:
    made = _module("keras.files")
    inputs = [
        made.input_layer(x.name, *x.array.shape[1:], dtype=x.array.dtype.name) for x in drawn.inputs
    ]
    names = [x.name for x in drawn.inputs]
    given = names[0] if len(names) == 1 else names
    config = {k: v for k, v in drawn.attrs.items() if k not in ("kind", "name")}
    called = made.layer(drawn.op, "it", given, **config)
    if drawn.domain == "ops":
        called["module"] = "keras.src.ops"
    arrays = [x.array for x in drawn.operands if x.constant]
    weights = {f"layers/{made.key(drawn.op)}{rng.choice(['', '/cell'])}": arrays}
    return made.archive(made.functional([*inputs, called], names, ["it"]), weights), None, {}


def caffe(drawn: Drawn, rng: random.Random) -> Files:
    made = _module("caffe.networks")
    net = made.Net(*_shape(drawn, rng))
    params = [w for w in drawn.words if w.endswith("_param")] or ["param"]
    fields = " ".join(_field(k, v) for k, v in drawn.attrs.items() if k not in params)
    blobs = [x.array.astype(np.float32) for x in drawn.operands if x.constant]
    bottoms = ["data"] * rng.choice([1, 1, 2, 3])
    net.layer(drawn.op, f"{rng.choice(params)} {{ {fields} }}", bottoms=bottoms, blobs=blobs)
    return (*net.files(), {})


def _field(name: str, given: Any) -> str:
    items = given if isinstance(given, list) else [given]
    return " ".join(f"{name}: {str(i).lower() if isinstance(i, bool) else i}" for i in items)


def _shape(drawn: Drawn, rng: random.Random) -> tuple[int, ...]:
    shape = drawn.operands[0].array.shape
    return shape if len(shape) > 1 and rng.random() < 0.5 else _IMAGE


def darknet(drawn: Drawn, rng: random.Random) -> Files:
    made = _module("darknet.networks")
    sections = [made.conv(rng.randrange(1, 6)), made.pool()][: rng.randrange(3)]
    names = [*drawn.attrs, *rng.sample(drawn.words, min(len(drawn.words), 3))]
    options = {name: value(drawn.words, rng) for name in names}
    texts = {k: ",".join(map(str, v)) if isinstance(v, list) else v for k, v in options.items()}
    every = [*sections, (drawn.op, texts)]
    # Weights for as many filters as are written, where these can be meant.
    few = all(v < _MANY for v in texts.values() if isinstance(v, int | float))
    weights = made.weights(every if few else sections, 6, 6)
    return made.cfg_text(every, 6, 6).encode(), weights, {}


FILES: Final = {f.__name__: f for f in (tensorflow, tflite, onnx, mxnet, keras, caffe, darknet)}
