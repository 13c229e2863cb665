"""The four networks of MLPerf Tiny on microcontrollers: flash, RAM, instructions of an inference.

    python benchmarks/micro.py [processor …]

Networks are quantized to bytes, with random weights. They run on emulated boards, whose clocks
count instructions; answers are compared, byte for byte, with those of the same model here.

Beside them stand cycles of a peer on a Cortex-M4 (STM32L4R5ZI at 120 MHz): microTVM with CMSIS-NN,
as OctoML submitted it to MLPerf Tiny 1.0 (tiny_results_v1.0, closed/OctoML, median throughput).
A core that starts one instruction in each cycle does not do more instructions than cycles.

RAM is static memory, with inputs and outputs, but for the stack. Beside it stands what TensorFlow
Lite Micro allocates in its arena for the same files: its Python package (`tflite-micro`
0.dev20261023) on x86-64, by plain kernels, which need no memory of their own as CMSIS-NN's do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))


import tilewright as tw
from tests.emulated.boards import BOARDS, Measured
from tests.emulated.mlperf_tiny import NETWORKS, Network

_CLOCK: Final = 120e6
#: Inferences in a second, and bytes.
_PEERS: Final = {
    "keyword spotting (DS-CNN)": (10.019, 24_272),
    "wake words (MobileNet-V1 0.25)": (3.320, 103_680),
    "image classification (ResNet-8)": (2.567, 55_984),
    "anomaly detection (autoencoder)": (116.212, 3_984),
}
_COLUMNS: Final = (
    ("network", 32),
    ("processor", 11),
    ("products", 11),
    ("instructions", 13),
    ("each", 5),
    ("flash", 8),
    ("RAM", 7),
    ("stack", 6),
    ("peer's cycles on M4", 20),
    ("peer's RAM", 11),
)


def measured(network: Network, cpu: str) -> Measured:
    """A run of a network on a board; its answers must be those of this machine."""
    data = network.model()
    here = tw.compile(data)
    shape = here.inputs[0].shape
    x = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    run = BOARDS[cpu].run(tw.compile(data, f"llvm -mcpu={cpu}"), [x])
    np.testing.assert_array_equal(run.outputs[0], here.run([x])[0])
    return run


def _row(name: str, cpu: str, network: Network, run: Measured) -> str:
    rate, ram = _PEERS[name]
    cycles = f"{_CLOCK / rate:,.0f}" if cpu == "cortex-m4" else ""
    cells = (
        name,
        cpu,
        f"{network.macs:,}",
        f"{run.instructions:,}",
        f"{run.instructions / network.macs:.2f}",
        f"{run.footprint.flash:,}",
        f"{run.footprint.ram + run.exchanged:,}",
        f"{run.stack:,}",
        cycles,
        f"{ram:,}",
    )
    return "  ".join(f"{c:<{w}}" if k < 2 else f"{c:>{w}}" for k, (c, (_, w)) in _zipped(cells))


def _zipped(cells: tuple[str, ...]) -> list[tuple[int, tuple[str, tuple[str, int]]]]:
    return list(enumerate(zip(cells, _COLUMNS, strict=True)))


def main(cpus: list[str]) -> int:
    print("  ".join(f"{n:<{w}}" if k < 2 else f"{n:>{w}}" for k, (n, w) in enumerate(_COLUMNS)))
    for name, make in NETWORKS.items():
        for cpu in cpus:
            network = make()
            try:
                print(_row(name, cpu, network, measured(network, cpu)), flush=True)
            except FileNotFoundError as missing:
                print(f"{name} on {cpu} was left out: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["cortex-m4", "cortex-m55"]))
