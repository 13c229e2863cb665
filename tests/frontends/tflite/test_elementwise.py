"""Operators on elements, beside NumPy and LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.cases import Case, case, fixed, flags, floats, integers, positive
from tests.frontends.tflite.peer import lite, ours, require_close


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def f32(function: Any) -> Any:
    return lambda *xs: np.asarray(function(*xs), np.float32)


X, Y = floats(2, 3, 4), floats(3, 1)
CASES: dict[str, Case] = {
    "add": case("ADD", [X, Y], lambda a, b: a + b),
    "add_relu6": case("ADD", [X * 4, Y], lambda a, b: np.clip(a + b, 0, 6), activation=3),
    "sub_relu": case("SUB", [X, Y], lambda a, b: np.maximum(a - b, 0), activation=1),
    "mul_relu_n1": case("MUL", [X, Y], lambda a, b: np.clip(a * b, -1, 1), activation=2),
    "mul_integers": case("MUL", [integers(4), integers(4)], lambda a, b: a * b),
    "div": case("DIV", [X, positive(3, 1)], lambda a, b: a / b),
    "div_integers": case(
        "DIV",
        [integers(8, low=-20, high=20), integers(8, low=1, high=5)],
        lambda a, b: np.trunc(a / b).astype(np.int32),
    ),
    "floor_div": case(
        "FLOOR_DIV",
        [integers(8, low=-20, high=20), integers(8, low=1, high=5)],
        lambda a, b: a // b,
    ),
    "floor_mod": case(
        "FLOOR_MOD",
        [integers(8, low=-20, high=20), integers(8, low=1, high=5)],
        lambda a, b: a % b,
    ),
    "floor_mod_floats": case("FLOOR_MOD", [X, positive(3, 1)], lambda a, b: a % b),
    "pow": case("POW", [positive(5), floats(5)], lambda a, b: a**b),
    "maximum": case("MAXIMUM", [X, Y], np.maximum),
    "minimum": case("MINIMUM", [X, Y], np.minimum),
    "squared_difference": case("SQUARED_DIFFERENCE", [X, Y], lambda a, b: (a - b) ** 2),
    "add_n": case("ADD_N", [X, X, X], lambda a, b, c: a + b + c),
    "atan2": case("ATAN2", [X, X[::-1].copy()], np.arctan2),
    "xor": case("BITWISE_XOR", [integers(6), integers(6)], np.bitwise_xor),
    "right_shift": case(
        "RIGHT_SHIFT", [integers(6, low=-99, high=99), integers(6, low=0, high=5)], np.right_shift
    ),
    "equal": case("EQUAL", [integers(9), integers(9)], np.equal),
    "less": case("LESS", [X, Y], np.less),
    "greater_equal": case("GREATER_EQUAL", [X, Y], np.greater_equal),
    "and": case("LOGICAL_AND", [flags(6), flags(6)], np.logical_and),
    "or": case("LOGICAL_OR", [flags(6), flags(6)], np.logical_or),
    "not": case("LOGICAL_NOT", [flags(6)], np.logical_not),
    "select": case(
        "SELECT",
        [flags(2), floats(2, 3), floats(2, 3)],
        lambda c, a, b: np.where(c[:, None], a, b),
    ),
    "select_v2": case("SELECT_V2", [flags(3, 1), floats(2, 3, 4), floats(4)], np.where),
    "abs": case("ABS", [X], np.abs),
    "neg": case("NEG", [X], np.negative),
    "sign": case("SIGN", [X], np.sign),
    "floor": case("FLOOR", [X], np.floor),
    "ceil": case("CEIL", [X], np.ceil),
    "round": case("ROUND", [np.array([0.5, 1.5, -0.5, 2.4], np.float32)], np.rint),
    "exp": case("EXP", [X], np.exp),
    "log": case("LOG", [positive(5)], np.log),
    "sqrt": case("SQRT", [positive(5)], np.sqrt),
    "rsqrt": case("RSQRT", [positive(5)], f32(lambda x: 1 / np.sqrt(x))),
    "sin": case("SIN", [X], np.sin),
    "cos": case("COS", [X], np.cos),
    "square": case("SQUARE", [X], np.square),
    "zeros_like": case("ZEROS_LIKE", [X], np.zeros_like),
    "logistic": case("LOGISTIC", [X], f32(sigmoid)),
    "tanh": case("TANH", [X], np.tanh),
    "elu": case("ELU", [X], f32(lambda x: np.where(x > 0, x, np.expm1(x)))),
    "relu": case("RELU", [X], lambda x: np.maximum(x, 0)),
    "relu6": case("RELU6", [X * 5], lambda x: np.clip(x, 0, 6)),
    "relu_n1_to_1": case("RELU_N1_TO_1", [X], lambda x: np.clip(x, -1, 1)),
    "relu_0_to_1": case("RELU_0_TO_1", [X], lambda x: np.clip(x, 0, 1)),
    "leaky_relu": case("LEAKY_RELU", [X], f32(lambda x: np.where(x > 0, x, 0.2 * x)), alpha=0.2),
    "prelu": case("PRELU", [X, floats(1, 1, 4)], lambda x, a: np.where(x >= 0, x, a * x)),
    "hard_swish": case("HARD_SWISH", [X * 3], f32(lambda x: x * np.clip(x + 3, 0, 6) / 6)),
    "gelu_tanh": case(
        "GELU",
        [X],
        f32(lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
        approximate=True,
    ),
    "cast": case("CAST", [X], lambda x: x.astype(np.int32), from_type=0, to_type=2),
    "bitcast": case("BITCAST", [X], lambda x: x.view(np.int32)),
    "bucketize": case(
        "BUCKETIZE",
        [X],
        lambda x: np.digitize(x, [-1, 0, 1]).astype(np.int32),
        boundaries=[-1, 0, 1],
    ),
    "embedding": case(
        "EMBEDDING_LOOKUP", [fixed(2, 0, 1), floats(3, 4)], lambda i, table: table[i]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_numpy(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs), c.wanted)


@pytest.mark.parametrize("name", CASES)
def test_beside_litert(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs), lite(c.data, *c.inputs))
