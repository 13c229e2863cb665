"""The language model of the examples: right beside PyTorch, with a cache, in four bits, trained."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")

_FILE = Path(__file__).parent.parent / "examples" / "language_model.py"


@cache
def example() -> Any:
    spec = importlib.util.spec_from_file_location("language_model", _FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules["language_model"] = module
    spec.loader.exec_module(module)
    return module


@cache
def config() -> Any:
    return example().Config(width=64, layers=2, heads=4, groups=2, hidden=96, longest=128)


# ---- the same network in PyTorch ----------------------------------------------------------------


def all_logits(c: Any, w: Any, tokens: Any) -> Any:
    """The logits after each token of texts, without a cache."""
    x = w["embedding"][tokens]
    for n in range(c.layers):
        x = x + attended(c, w, n, normalized(x, w[f"{n}.attention_norm"]))
        y = normalized(x, w[f"{n}.hidden_norm"])
        gated = torch.nn.functional.silu(y @ w[f"{n}.gate"]) * (y @ w[f"{n}.up"])
        x = x + gated @ w[f"{n}.down"]
    return normalized(x, w["norm"]) @ w["logits"]


def normalized(x: Any, scale: Any) -> Any:
    return torch.nn.functional.rms_norm(x, scale.shape, scale, 1e-5)


def attended(c: Any, w: Any, n: int, x: Any) -> Any:
    texts, length, _ = x.shape

    def heads(name: str, count: int) -> Any:
        return (x @ w[f"{n}.{name}"]).reshape(texts, length, count, c.depth).transpose(1, 2)

    q, k = rotated(heads("queries", c.heads)), rotated(heads("keys", c.groups))
    mixed = torch.nn.functional.scaled_dot_product_attention(
        q, k, heads("values", c.groups), is_causal=True, enable_gqa=True
    )
    return mixed.transpose(1, 2).reshape(texts, length, c.width) @ w[f"{n}.mixed"]


def rotated(x: Any) -> Any:
    length, half = x.shape[2], x.shape[3] // 2
    angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.complex(x[..., :half], x[..., half:]) * turns
    return torch.cat([pairs.real, pairs.imag], dim=3)


# ---- what it has learnt -------------------------------------------------------------------------

_WORDS = {
    "a": "small grey quiet hungry old",
    "n": "cat dog fox owl mouse",
    "v": "sees hears follows likes finds",
}


def text(count: int, seed: int) -> bytes:
    """Sentences of a small grammar."""
    rng = np.random.default_rng(seed)
    words = {k: v.split() for k, v in _WORDS.items()}

    def phrase(kinds: str) -> str:
        return " ".join(str(rng.choice(words[k])) for k in kinds)

    made = (f"the {phrase('an')} {phrase('v')} the {phrase('an')}. " for _ in range(count))
    return "".join(made).encode()


@cache
def trained() -> dict[str, Any]:
    """Weights of a network that knows how sentences go."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    c = config()
    weights = {
        k: torch.tensor(v, requires_grad=True) for k, v in example().random_weights(c).items()
    }
    bytes_ = torch.tensor(list(text(600, 1)))
    optimizer = torch.optim.Adam(weights.values(), 3e-3)
    for _ in range(120):
        starts = torch.randint(len(bytes_) - 65, (16,)).tolist()
        part = torch.stack([bytes_[s : s + 65] for s in starts])
        logits = all_logits(c, weights, part[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {k: v.detach() for k, v in weights.items()}


@cache
def module() -> Any:
    return example().decoder(config(), {k: v.numpy() for k, v in trained().items()})


@cache
def generator(weights: str) -> Any:
    made = module() if weights == "float32" else tw.quantize(module(), weights=weights)
    return example().Generator(made, config(), threads=1)


def after_each(weights: str, tokens: bytes, first: int) -> Any:
    """The logits after the first tokens at once, and after each of the others by itself."""
    g = generator(weights)
    g.clear()
    found = [g.logits(tokens[:first]).copy()]
    return np.stack([*found, *(g.logits([t]).copy() for t in tokens[first:])])


@pytest.mark.parametrize("first", [1, 2, 30])
def test_a_cache_gives_the_same_as_all_tokens_at_once(first: int) -> None:
    tokens = text(2, 5)[:40]
    want = all_logits(config(), trained(), torch.tensor([list(tokens)]))[0, first - 1 :]
    got = after_each("float32", tokens, first)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-3, atol=1e-3)


def accuracy(weights: str) -> float:
    """How often the likeliest letter is the next one, in percent, in text that was not seen."""
    hits = count = 0
    for seed in (50, 51, 52):
        tokens = text(4, seed)[:120]
        best = after_each(weights, tokens, 8)[:-1].argmax(axis=1)
        hits += int((best == np.frombuffer(tokens[8:], np.uint8)).sum())
        count += len(best)
    return 100 * hits / count


def test_four_bits_cost_a_point_at_most() -> None:
    assert accuracy("float32") > 75, "it has learnt something"
    assert accuracy("int4") >= accuracy("float32") - 1


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_data_makes_four_bits_better(method: str) -> None:
    c = config()
    nothing = np.zeros((0, c.groups, c.depth), np.float32)
    empty = {p.name: nothing for p in module().main.params[1:]}
    data = [{"tokens": np.frombuffer(text(3, k)[:96], np.uint8), **empty} for k in range(16)]
    plain, by_data = (
        tw.quantize(module(), data, weights="int4", method=m) for m in ("mse", method)
    )
    errors = [q.report.error for q in (by_data, plain)]
    better, worse = (e.sqnr for e in errors if e is not None)
    assert better > worse


def test_text_comes_token_by_token() -> None:
    prompt = b"the small cat "
    stream = generator("int4").stream(prompt, 40, example().greedy)
    assert not isinstance(stream, list)
    written = bytes(stream).decode()
    known = {w for words in _WORDS.values() for w in words.split()} | {"the"}
    words = [w.strip(".") for w in written.split(" ")][:-1]
    assert len(written) == 40 and words and set(words) <= known, written
    choices = [
        bytes(generator("int4").stream(prompt, 40, example().sampled(1.0, seed=s)))
        for s in (1, 1, 2)
    ]
    assert choices[0] == choices[1] != choices[2]


def test_the_longest_text_is_a_limit() -> None:
    g = generator("float32")
    g.clear()
    g.logits([1] * config().longest)
    with pytest.raises(tw.UserError, match="there is room for 128"):
        g.logits([1])
