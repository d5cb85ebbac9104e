"""Well-known architectures as PyTorch exports them: open lengths, random weights, no downloads.

    pip install 'aioinfer[zoo]'
    python benchmarks exported all --output-dir build/exported
    python benchmarks exported resnet50 bert --output-dir build/exported

An architecture is a module of torchvision or transformers, small where its size decides nothing,
with an example of its inputs. Exported graphs hold what the networks of models.py leave out: shape
arithmetic in every layer, masks made of lengths, casts, and paddings computed by matrices.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPSET = 17
VOCABULARY = 1000

BATCH = {0: "batch"}
IMAGE = {0: "batch", 2: "height", 3: "width"}
TEXT = {0: "batch", 1: "sequence"}

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
}
NARROW = {**SMALL, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}


@dataclass(frozen=True)
class Architecture:
    """A module: how it is made, and the example that it is exported with.

    ``open_axes`` are those of its inputs that stay open, with their names.
    """

    make: Callable[[], Any]
    example: Callable[[], dict[str, Any]]
    open_axes: dict[int, str]


def image(size: int = 64) -> Callable[[], dict[str, Any]]:
    def draw() -> dict[str, Any]:
        import torch

        return {"image": torch.randn(2, 3, size, size)}

    return draw


def text() -> dict[str, Any]:
    import torch

    ids = torch.randint(5, VOCABULARY, (2, 9))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def ids() -> dict[str, Any]:
    return {"input_ids": text()["input_ids"]}


def vision(name: str, axes: dict[int, str] = BATCH, size: int = 64, **options: Any) -> Architecture:
    """Take a classifier of torchvision by its name."""

    def make() -> Any:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options)

    return Architecture(make, image(size), axes)


def segmentation(name: str) -> Architecture:
    """Take a network of torchvision that labels pixels; its main output is what counts."""

    def make() -> Any:
        import torch

        class Main(torch.nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, image: Any) -> Any:
                return self.inner(image)["out"]

        return Main(vision(name, weights_backbone=None).make())

    return Architecture(make, image(), IMAGE)


def detector(name: str, size: int) -> Architecture:
    """Take a detector of torchvision: a picture goes in; boxes, scores and labels come out."""

    def make() -> Any:
        import torch

        class Detector(torch.nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, image: Any) -> Any:
                return tuple(self.inner([image])[0].values())

        return Detector(vision(name, weights_backbone=None).make())

    def draw() -> dict[str, Any]:
        import torch

        return {"image": torch.rand(3, size, size)}

    return Architecture(make, draw, {})


def generator() -> Any:
    """Make the generator of a DCGAN: a picture of 64 x 64 from 100 numbers."""
    from torch import nn

    layers: list[nn.Module] = []
    widths = (100, 512, 256, 128, 64)
    for index, (width, wider) in enumerate(zip(widths[1:], widths, strict=False)):
        stride, padding = (2, 1) if index else (1, 0)
        layers += [
            nn.ConvTranspose2d(wider, width, 4, stride, padding, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1), nn.Tanh())


def noise() -> dict[str, Any]:
    import torch

    return {"noise": torch.randn(2, 100, 1, 1)}


def language(model: str, config: str, **options: Any) -> Architecture:
    """Take a model of transformers by its class and its configuration's."""

    def make() -> Any:
        import torch
        import transformers

        class Hidden(torch.nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                given = {"input_ids": input_ids, "attention_mask": attention_mask}
                return self.inner(**given, return_dict=False)[0]

        settings = getattr(transformers, config)(**options)
        settings._attn_implementation = "eager"
        if hasattr(settings, "use_cache"):
            settings.use_cache = False
        return Hidden(getattr(transformers, model)(settings))

    return Architecture(make, text, TEXT)


def tagger() -> Any:
    import torch

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, 64)
            self.lstm = torch.nn.LSTM(64, 64, 2, batch_first=True, bidirectional=True)
            self.out = torch.nn.Linear(128, 10)

        def forward(self, input_ids: Any) -> Any:
            return self.out(self.lstm(self.embedding(input_ids))[0])

    return Tagger()


ARCHITECTURES: dict[str, Architecture] = {
    "alexnet": vision("alexnet", size=224),
    "convnext_tiny": vision("convnext_tiny", IMAGE),
    "deeplabv3_mobilenet": segmentation("deeplabv3_mobilenet_v3_large"),
    "dcgan": Architecture(generator, noise, BATCH),
    "densenet121": vision("densenet121"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "fasterrcnn_mobilenet": detector("fasterrcnn_mobilenet_v3_large_320_fpn", 320),
    "fcn_resnet50": segmentation("fcn_resnet50"),
    "googlenet": vision("googlenet", init_weights=False, aux_logits=False),
    "maxvit_t": vision("maxvit_t", size=224),
    "mnasnet1_0": vision("mnasnet1_0", IMAGE),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v3_small": vision("mobilenet_v3_small", IMAGE),
    "regnet_y_400mf": vision("regnet_y_400mf"),
    "resnet18": vision("resnet18"),
    "resnet50": vision("resnet50"),
    "resnext50_32x4d": vision("resnext50_32x4d"),
    "shufflenet_v2": vision("shufflenet_v2_x1_0"),
    "ssdlite": detector("ssdlite320_mobilenet_v3_large", 320),
    "squeezenet1_1": vision("squeezenet1_1", IMAGE),
    "swin_t": vision("swin_t"),
    "vgg11_bn": vision("vgg11_bn", size=224),
    "vit_b_32": vision("vit_b_32", size=224),
    "albert": language("AlbertModel", "AlbertConfig", **SMALL, embedding_size=128),
    "bert": language("BertModel", "BertConfig", **SMALL),
    "deberta_v2": language("DebertaV2Model", "DebertaV2Config", **NARROW),
    "distilbert": language(
        "DistilBertModel",
        "DistilBertConfig",
        vocab_size=VOCABULARY,
        dim=256,
        n_layers=3,
        n_heads=4,
        hidden_dim=512,
    ),
    "electra": language("ElectraModel", "ElectraConfig", **SMALL, embedding_size=128),
    "gemma": language("GemmaModel", "GemmaConfig", **NARROW, num_key_value_heads=1, head_dim=64),
    "gpt2": language(
        "GPT2Model", "GPT2Config", vocab_size=VOCABULARY, n_embd=256, n_layer=3, n_head=4
    ),
    "gpt_neox": language("GPTNeoXModel", "GPTNeoXConfig", **NARROW),
    "llama": language("LlamaModel", "LlamaConfig", **NARROW),
    "mistral": language("MistralModel", "MistralConfig", **NARROW, num_key_value_heads=2),
    "mpnet": language("MPNetModel", "MPNetConfig", **SMALL),
    "opt": language(
        "OPTModel",
        "OPTConfig",
        vocab_size=VOCABULARY,
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        ffn_dim=512,
        word_embed_proj_dim=256,
    ),
    "phi": language("PhiModel", "PhiConfig", **NARROW),
    "qwen2": language("Qwen2Model", "Qwen2Config", **NARROW, num_key_value_heads=2),
    "roberta": language("RobertaModel", "RobertaConfig", **SMALL),
    "t5_encoder": language(
        "T5EncoderModel",
        "T5Config",
        vocab_size=VOCABULARY,
        d_model=256,
        num_layers=3,
        num_heads=4,
        d_kv=64,
        d_ff=512,
    ),
    "xlm_roberta": language("XLMRobertaModel", "XLMRobertaConfig", **SMALL),
    "lstm_tagger": Architecture(tagger, ids, TEXT),
}


def export(name: str, folder: Path) -> Path:
    """Write an architecture with random weights of a fixed seed, and return its file."""
    import torch

    architecture, file = ARCHITECTURES[name], folder / f"{name}.onnx"
    torch.manual_seed(0)
    module, example = architecture.make().eval(), architecture.example()
    open_axes = dict.fromkeys(example, architecture.open_axes)
    with warnings.catch_warnings():  # with gradients: attention's fast path cannot be exported
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(example.values()),
            str(file),
            input_names=list(example),
            output_names=["output"],
            dynamic_axes={**open_axes, "output": BATCH},
            dynamo=False,
            opset_version=OPSET,
        )
    return file


def export_all(names: Iterable[str], folder: Path) -> Iterator[str]:
    """Export one after the other, and say of each what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            file = export(name, folder)
        except Exception as error:  # the exporter raises whatever it likes; the next one may do
            yield f"{name}: not exported: {str(error).splitlines()[0]:.120}"
        else:
            yield f"{file}: {file.stat().st_size / 1e6:.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="+", choices=["all", *ARCHITECTURES], metavar="NAME")
    parser.add_argument("--output-dir", type=Path, required=True)
    arguments = parser.parse_args()
    names = list(ARCHITECTURES) if "all" in arguments.names else arguments.names
    for line in export_all(names, arguments.output_dir):
        print(line)
