"""ONNX models of public architectures with seeded random weights, for `benchmarks/models.py`.

    python -P benchmarks/whole_models/recipes.py [--batch=N] [NAME ...]

They are written to `build/models`; those that are there already are not built again. Needs what
`make bench` installs: torch, transformers and, without their dependencies, timm and torchvision.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path("build/models")
IMAGE_MODELS = [
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenetv2_100",
    "mobilenetv3_large_100",
    "efficientnet_b0",
    "regnety_008",
    "densenet121",
    "inception_v3",
    "squeezenet",
    "convnext_tiny",
    "vit_base_patch16_224",
    "swin_tiny_patch4_window7_224",
]


@dataclass
class Recipe:
    """A network with an example of its inputs, as the exporter takes them."""

    network: Any
    inputs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)


def model_path(name: str, batch: int = 1) -> Path:
    """Where the model of this name lies once it is built."""
    return FOLDER / (f"{name}.onnx" if batch == 1 else f"{name}_batch{batch}.onnx")


def make_model(name: str, batch: int = 1) -> Path:
    """Build the model if it is not there."""
    path = model_path(name, batch)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _export(ALL_RECIPES[name](batch), path)
    return path


def _export(recipe: Recipe, path: Path) -> None:
    import torch

    dynamo = bool(recipe.options.get("dynamo"))
    options = {"dynamo": dynamo, "opset_version": 18 if dynamo else 17, **recipe.options}
    if dynamo:
        options["external_data"] = False
    unfinished = path.with_suffix(".unfinished")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            recipe.network.eval(),
            tuple(recipe.inputs.values()),
            str(unfinished),
            input_names=list(recipe.inputs),
            output_names=["y"],
            **options,
        )
    unfinished.rename(path)


# ---- images -------------------------------------------------------------------------------------


def image_model(name: str, batch: int) -> Recipe:
    import torch

    vision = _torchvision()
    torch.manual_seed(0)
    if name == "squeezenet":
        network = vision.models.squeezenet1_1()
    else:
        import timm

        network = timm.create_model(name, pretrained=False)
    x = torch.randn(batch, 3, 224, 224)
    _settle_batch_norm(network, x)
    return Recipe(network, {"x": x})


def _torchvision() -> Any:
    """Import torchvision, also where its compiled library is missing: each operator that it asks
    for is then declared, which is enough for the definitions of networks."""
    import torch

    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    for _ in range(20):
        try:
            import torchvision

            return torchvision
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if not missing:
                raise
            for loaded in [m for m in sys.modules if m.startswith("torchvision")]:
                del sys.modules[loaded]
            if not _kept:
                _kept.append(torch.library.Library("torchvision", "DEF"))
            given = "Tensor dets, Tensor scores, float iou_threshold"
            is_suppression = missing.group(1).endswith("nms")
            _kept[0].define(
                f"{missing.group(1)}({given if is_suppression else 'Tensor x'}) -> Tensor"
            )
    raise RuntimeError("torchvision does not import")


#: Declarations of operators, which last as long as these objects.
_kept: list[Any] = []


def _settle_batch_norm(network: Any, x: Any) -> None:
    """Statistics from data, or deep random networks fade to denormals; a varied affine part, or
    mistakes in folding it stay hidden."""
    import torch

    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        norm.weight.data.uniform_(0.5, 1.5)
        norm.bias.data.normal_(0, 0.1)
    if norms:
        with torch.no_grad():
            network.train()(torch.cat([x[:1], torch.randn_like(x[:1]), torch.randn_like(x[:1])]))


def segmentation_model(name: str, batch: int) -> Recipe:
    """A network of torchvision that gives each pixel a class."""
    import torch

    vision = _torchvision()
    torch.manual_seed(0)
    made = getattr(vision.models.segmentation, name)(weights=None, weights_backbone=None)
    network = _forward(made, lambda m, x: m(x)["out"])
    x = torch.randn(batch, 3, 224, 224)
    _settle_batch_norm(network, x)
    return Recipe(network, {"x": x})


def yolo_like(batch: int) -> Recipe:
    """A detector, on images as large as it takes to see something in them."""
    import torch

    # This file is read as a module of the folder, and as one of the package.
    sys.path.append(str(Path(__file__).parent))
    from detector import Detector

    torch.manual_seed(0)
    network, x = Detector(), torch.randn(batch, 3, 320, 320)
    _settle_batch_norm(network, x)
    return Recipe(network, {"x": x})


# ---- text, sequences, plain layers --------------------------------------------------------------


def bert_base(batch: int) -> Recipe:
    import torch

    transformers = _transformers()
    torch.manual_seed(0)
    config = transformers.BertConfig()
    config._attn_implementation = "eager"
    ids = torch.randint(0, 1000, (batch, 128))
    network = _forward(
        transformers.BertModel(config),
        lambda m, ids, mask: m(input_ids=ids, attention_mask=mask).last_hidden_state,
    )
    return Recipe(network, {"ids": ids, "mask": torch.ones_like(ids)})


def gpt2(batch: int) -> Recipe:
    import torch

    transformers = _transformers()
    torch.manual_seed(0)
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    ids = torch.randint(0, 1000, (batch, 128))
    return Recipe(_logits(network), {"ids": ids}, {"dynamo": True})


def llama_tiny(batch: int) -> Recipe:
    """With a free number of tokens."""
    import torch

    transformers = _transformers()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=8000,
    )
    ids = torch.randint(0, 1000, (batch, 128))
    length = torch.export.Dim("s", min=2, max=512)
    return Recipe(
        _logits(transformers.LlamaForCausalLM(config)),
        {"ids": ids},
        {"dynamo": True, "dynamic_shapes": ({1: length},)},
    )


def lstm(batch: int) -> Recipe:
    import torch

    torch.manual_seed(0)
    parts = torch.nn.ModuleList(
        [torch.nn.LSTM(256, 512, 2, batch_first=True), torch.nn.Linear(512, 1000)]
    )
    return Recipe(
        _forward(parts, lambda m, x: m[1](m[0](x)[0])), {"x": torch.randn(batch, 64, 256)}
    )


def mlp(batch: int) -> Recipe:
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return Recipe(nn.Sequential(*layers), {"x": torch.randn(batch, 784)})


def _transformers() -> Any:
    _torchvision()  # which it imports where it finds it
    import transformers

    return transformers


def _logits(network: Any) -> Any:
    # One parameter of this name: the free dimensions are given in its order.
    return _forward(network, lambda m, ids: m(input_ids=ids, use_cache=False).logits)


def _forward(network: Any, call: Callable[..., Any]) -> Any:
    """A module that calls `network` in another way."""
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

    Wrapped.forward = _FORWARDS[call.__code__.co_argcount](call)
    return Wrapped()


#: The exporter reads the names of parameters off the signature, so each count has its own.
_FORWARDS: dict[int, Callable[[Callable[..., Any]], Any]] = {
    2: lambda call: lambda self, x: call(self.network, x),
    3: lambda call: lambda self, x, y: call(self.network, x, y),
}

RECIPES: dict[str, Callable[[int], Recipe]] = {
    **{n: lambda batch, n=n: image_model(n, batch) for n in IMAGE_MODELS},
    **{f.__name__: f for f in (bert_base, gpt2, llama_tiny, lstm, mlp)},
}
#: Those that are not among the ONNX models as well.
SEGMENTATION = ["fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]
ALL_RECIPES = {
    **RECIPES,
    **{n: lambda batch, n=n: segmentation_model(n, batch) for n in SEGMENTATION},
    "yolo_like": yolo_like,
}


def main() -> None:
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    for name in options.names or RECIPES:
        if name not in RECIPES:
            parser.error(f"no model {name}; there are {' '.join(RECIPES)}")
        path = make_model(name, options.batch)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
