"""Object code for many processors, whatever machine this is: a small sample of `sweep`."""

from __future__ import annotations

import itertools

import pytest

import tilewright as tw
from tests.all_targets.graphs import FAMILIES, Network
from tests.all_targets.sweep import Trial, random_trials
from tests.machines import CORES, CPUS
from tests.models.wheels import model_bytes

#: One of each family.
SAMPLE = list(itertools.islice(random_trials(), len(FAMILIES)))


@pytest.mark.parametrize("trial", SAMPLE, ids=lambda t: f"{t.name} {t.target}")
def test_random_networks_compile(trial: Trial) -> None:
    assert trial.run() == ""


@pytest.mark.parametrize(("cpu", "cores"), list(zip(CPUS, itertools.cycle(CORES), strict=False)))
def test_a_small_network_compiles_for_every_processor(cpu: str, cores: int) -> None:
    net = Network(0)
    x = net.add("Conv", net.input("n", 3, "h", "w"), net.weight(8, 3, 3, 3), strides=[2, 2])
    flat = net.add("Flatten", net.add("GlobalAveragePool", net.add("Relu", x)))
    model = net.model(net.add("Softmax", net.add("MatMul", flat, net.weight(8, 10))))
    assert Trial("small", model, f"llvm -mcpu={cpu} -num-cores={cores}").run() == ""


@pytest.mark.parametrize("target", ["apple-m1 -num-cores=16", "sapphirerapids -num-cores=1"])
def test_a_trained_model_compiles(target: str) -> None:
    raw = model_bytes("silero_vad", "silero_vad/data/silero_vad_16k_sequence.onnx")
    assert isinstance(tw.compile(raw, f"llvm -mcpu={target}"), tw.Model)
