"""The benchmark networks in PyTorch on a GPU: eager, and by torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from whole_models.recipes import RECIPES

#: Of torch.compile. CUDA graphs are made by who times, so that all ways are timed alike.
MODES = {"max-autotune": "max-autotune-no-cudagraphs", "default": "default"}


def ways(
    name: str, dtype: str, mode: str, batch: int = 1, *, tf32: bool = False
) -> dict[str, Callable[[], Any]]:
    """A run of the network, by each way."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    recipe, wanted = RECIPES[name](batch), getattr(torch, dtype)
    for module in recipe.network.modules():
        if hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation("sdpa")
    network = recipe.network.eval().cuda().to(wanted, memory_format=torch.channels_last)
    given = [_on_gpu(x, wanted) for x in recipe.inputs.values()]
    compiled = torch.compile(network, mode=MODES[mode])
    return {"eager": lambda: network(*given), "compiled": lambda: compiled(*given)}


def _on_gpu(x: Any, wanted: torch.dtype) -> Any:
    if x.is_floating_point():
        x = x.to(wanted)
    return x.cuda().contiguous(
        memory_format=torch.channels_last if x.dim() == 4 else torch.contiguous_format
    )
