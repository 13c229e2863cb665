"""A language model as it is run: prompt in, tokens out one by one, weights of four bits.

    python examples/language_model.py [--weights float32|int8|int4] [--tokens N]
                                      [--temperature T] [--seed N] [--size small|large]

One graph gives both programs: the prefill, which takes a prompt of any length, and the decode step,
which takes one token. Keys and values of all tokens so far are kept in arrays that are made once,
for the longest text. A program reads the part that is filled, and writes what is new right behind
it, so that nothing is copied however long the text gets.

Weights are random here, and so is the text. `decoder` takes a dict of arrays by name, as the
readers of checkpoint files give it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.graph import Builder, Module, Value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """The sizes of a decoder."""

    vocabulary: int = 256
    width: int = 128
    layers: int = 2
    heads: int = 4
    #: Heads of keys and values; several heads of queries share each.
    groups: int = 2
    hidden: int = 256
    #: Tokens of the longest text.
    longest: int = 256

    @property
    def depth(self) -> int:
        """Elements of one head."""
        return self.width // self.heads


SIZES = {
    "small": Config(),
    "large": Config(32000, 2048, 22, 32, 4, 5632, 2048),
}


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The weights by name: matrices have a row for each input."""
    width, kept = config.width, config.groups * config.depth
    found: dict[str, tuple[int, ...]] = {"embedding": (config.vocabulary, width)}
    for n in range(config.layers):
        found |= {
            f"{n}.attention_norm": (width,),
            f"{n}.queries": (width, width),
            f"{n}.keys": (width, kept),
            f"{n}.values": (width, kept),
            f"{n}.mixed": (width, width),
            f"{n}.hidden_norm": (width,),
            f"{n}.gate": (width, config.hidden),
            f"{n}.up": (width, config.hidden),
            f"{n}.down": (config.hidden, width),
        }
    return found | {"norm": (width,), "logits": (width, config.vocabulary)}


def random_weights(config: Config, seed: int = 0) -> dict[str, Array]:
    """Weights of a network that has learnt nothing."""
    rng = np.random.default_rng(seed)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)
        for name, shape in shapes(config).items()
    }


# ---- the graph ----------------------------------------------------------------------------------


def decoder(config: Config, weights: Mapping[str, Array]) -> Module:
    """Tokens, and the keys and values of those before them, to the logits of the next token and
    the keys and values of the new ones."""
    b = Builder()
    tokens = b.input("tokens", "i64", ("new",))
    sizes = ("past", config.groups, config.depth)
    pasts = [
        (b.input(f"keys{n}", "f32", sizes), b.input(f"values{n}", "f32", sizes))
        for n in range(config.layers)
    ]
    layer = _Layer(b, config, weights, _angles(b, config, tokens, pasts[0][0]))
    x, made = b.gather(weights["embedding"], tokens), list[Value]()
    for n, past in enumerate(pasts):
        x, keys, values = layer.applied(n, x, *past)
        made += [keys, values]
    last = b.slice(x, starts=[-1], ends=[b.dim("new")], axes=[0])
    logits = b.matmul(b.rms_norm(last, weights["norm"]), weights["logits"])
    names = [f"new_{kind}{n}" for n in range(config.layers) for kind in ("keys", "values")]
    b.output(logits, *made, names=["logits", *names])
    return b.build()


def _angles(b: Builder, config: Config, tokens: Value, past: Value) -> tuple[Value, Value]:
    """Cosines and sines by which pairs of elements are rotated, for each new token."""
    first = b.reshape(b.shape_of(past, start=0, end=1), shape=[])
    one = np.array(1, np.int64)
    places = b.cast(b.ramp(first, one, size=tokens.shape[0]), dtype="float32")
    half = config.depth // 2
    speeds = (10000.0 ** (-np.arange(half) / half)).astype(np.float32)
    angles = b.mul(b.reshape(places, shape=[-1, 1, 1]), speeds)
    return b.cos(angles), b.sin(angles)


class _Layer:
    """Writes the layers of a decoder down."""

    def __init__(
        self,
        b: Builder,
        config: Config,
        weights: Mapping[str, Array],
        angles: tuple[Value, Value],
    ) -> None:
        self._b, self._config, self._weights = b, config, weights
        self._cos, self._sin = angles

    def applied(self, n: int, x: Value, keys: Value, values: Value) -> tuple[Value, Value, Value]:
        b, c = self._b, self._config
        y = b.rms_norm(x, self._weights[f"{n}.attention_norm"])
        queries = self._rotated(self._heads(y, f"{n}.queries", c.heads))
        new_keys = self._rotated(self._heads(y, f"{n}.keys", c.groups))
        new_values = self._heads(y, f"{n}.values", c.groups)
        mixed = self._attended(queries, (keys, new_keys), (values, new_values))
        x = b.add(x, b.matmul(mixed, self._weights[f"{n}.mixed"]))
        return b.add(x, self._forward(n, x)), new_keys, new_values

    def _forward(self, n: int, x: Value) -> Value:
        b, w = self._b, self._weights
        y = b.rms_norm(x, w[f"{n}.hidden_norm"])
        gate = b.matmul(y, w[f"{n}.gate"])
        hidden = b.mul(b.mul(gate, b.sigmoid(gate)), b.matmul(y, w[f"{n}.up"]))
        return b.matmul(hidden, w[f"{n}.down"])

    def _heads(self, x: Value, name: str, count: int) -> Value:
        """Tokens × heads × elements."""
        b = self._b
        return b.reshape(b.matmul(x, self._weights[name]), shape=[-1, count, self._config.depth])

    def _rotated(self, x: Value) -> Value:
        """The first half of a head's elements are rotated with the second."""
        b, half = self._b, self._config.depth // 2
        low, high = b.split(x, sizes=[half, half], axis=2)
        turned = (
            b.sub(b.mul(low, self._cos), b.mul(high, self._sin)),
            b.add(b.mul(high, self._cos), b.mul(low, self._sin)),
        )
        return b.concat(*turned, axis=2)

    def _attended(
        self, queries: Value, keys: tuple[Value, Value], values: tuple[Value, Value]
    ) -> Value:
        """Values by how well keys fit queries: those of the past and the new ones lie apart."""
        b, c = self._b, self._config
        shared = [-1, c.groups, c.heads // c.groups, c.depth]
        q = b.mul(b.reshape(queries, shape=shared), np.float32(c.depth**-0.5))
        past, new = (b.einsum(q, k, equation="igrd,jgd->grij") for k in keys)
        scores = b.concat(past, self._masked(new), axis=3)
        share = b.softmax(scores, axis=3)
        parts = b.split(share, sizes=[keys[0].shape[0], keys[1].shape[0]], axis=3)
        mixed = [
            b.einsum(p, v, equation="grij,jgd->igrd") for p, v in zip(parts, values, strict=True)
        ]
        return b.reshape(b.add(*mixed), shape=[-1, c.width])

    def _masked(self, scores: Value) -> Value:
        """A new token sees itself, and those before it."""
        b = self._b
        places = b.ramp(np.array(0, np.int64), np.array(1, np.int64), size=scores.shape[2])
        sees = b.greater_equal(b.reshape(places, shape=[-1, 1]), places)
        return b.where(sees, scores, np.float32(-1e30))


# ---- generating ---------------------------------------------------------------------------------


class Generator:
    """A compiled decoder, with the keys and values of the text so far."""

    def __init__(self, module: Module, config: Config, threads: int | None = None) -> None:
        self.config = config
        self._prefill = tw.compile(module, threads=threads)
        self._decode = tw.compile(module, shapes={"tokens": (1,)}, threads=threads)
        sizes = (config.layers, 2, config.longest, config.groups, config.depth)
        self._cache = np.zeros(sizes, np.float32)
        self._logits = np.zeros((1, config.vocabulary), np.float32)
        self._count = 0

    def logits(self, tokens: Sequence[int]) -> Array:
        """Take in tokens; the logits of the one after them."""
        past, count = self._count, self._count + len(tokens)
        if not tokens or count > self.config.longest:
            raise tw.UserError(
                f"the text has {count} tokens, {len(tokens)} of them new",
                reason=f"there is room for {self.config.longest}",
            )
        program = self._decode if len(tokens) == 1 else self._prefill
        inputs: dict[str, Array] = {"tokens": np.array(list(tokens), np.int64)}
        inputs |= self._named("{}{}", slice(0, past))
        out = {"logits": self._logits} | self._named("new_{}{}", slice(past, count))
        program.run(inputs, out=out)
        self._count = count
        return self._logits[0]

    def clear(self) -> None:
        """Forget the text so far."""
        self._count = 0

    def _named(self, name: str, part: slice) -> dict[str, Array]:
        """A part of the cache, as the program calls it."""
        kinds = ("keys", "values")
        return {
            name.format(kind, n): self._cache[n, k, part]
            for n in range(self.config.layers)
            for k, kind in enumerate(kinds)
        }

    def stream(
        self, prompt: Sequence[int], count: int, choose: Callable[[Array], int]
    ) -> Iterator[int]:
        """New tokens, one by one as they are found; the text before is forgotten."""
        self.clear()
        logits = self.logits(prompt)
        for left in range(count, 0, -1):
            token = choose(logits)
            yield token
            if left > 1:
                logits = self.logits([token])


def greedy(logits: Array) -> int:
    """The likeliest token."""
    return int(logits.argmax())


def sampled(temperature: float, kept: int = 40, seed: int = 0) -> Callable[[Array], int]:
    """Chooses among the likeliest tokens by their probabilities."""
    rng = np.random.default_rng(seed)

    def choose(logits: Array) -> int:
        best = np.argsort(logits)[-kept:]
        size = np.exp((logits[best] - logits[best].max()) / temperature)
        return int(rng.choice(best, p=size / size.sum()))

    return choose


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", choices=("float32", "int8", "int4"), default="int4")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=tuple(SIZES), default="small")
    args = parser.parse_args()
    config = SIZES[args.size]
    module = decoder(config, random_weights(config, args.seed))
    if args.weights != "float32":
        module = tw.quantize(module, weights=args.weights)
        print(module.report.summary)
    generator = Generator(module, config)
    choose = sampled(args.temperature, seed=args.seed) if args.temperature else greedy
    start = time.perf_counter()
    for token in generator.stream(list(b"In the beginning"), args.tokens, choose):
        print(token, end=" ", flush=True)
    seconds = time.perf_counter() - start
    print(f"\n{args.tokens / seconds:.1f} tokens a second, the prompt included")


if __name__ == "__main__":
    main()
