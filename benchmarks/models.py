"""The networks of the benchmarks: well-known shapes, random weights, no downloads.

    python benchmarks/models.py all --output-dir build/models
    python benchmarks/models.py resnet50 minilm_l6 --output-dir build/models --batch batch

The weights come from a fixed seed and keep the activations at unit scale, so that the differences
between engines mean something and bfloat16 does not overflow. Speed does not depend on them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
from networks.builder import Dim
from networks.dense import unet, yolo
from networks.language import bert_base, gpt2_like, lstm_tagger, minilm_l6, vit_small
from networks.maps import draw_images
from networks.vision import (
    densenet121,
    efficientnet_b0,
    mobilenet_v2,
    mobilenet_v3_large,
    resnet50,
    shufflenet_v2,
)

Inputs = dict[str, npt.NDArray[Any]]
Chance = np.random.Generator


class Build(Protocol):
    def __call__(self, batch: Dim = 1, seed: int = 0) -> onnx.ModelProto: ...


@dataclass(frozen=True)
class Model:
    """A network: how it is built and what to feed it.

    ``inputs(chance, batch)`` gives arrays for a batch; ``dynamic`` names the dimensions that may be
    symbolic: ``build(batch="batch")``, and ``sequence="sequence"`` where it is listed.
    """

    name: str
    build: Build
    inputs: Callable[[Chance, int], Inputs]
    dynamic: tuple[str, ...] = ("batch",)


def images(size: int) -> Callable[[Chance, int], Inputs]:
    """Give images, (batch, 3, size, size), at unit scale."""
    return lambda chance, batch: {"image": draw_images(chance, batch, 3, size)}


def tokens(sequence: int, vocabulary: int) -> Callable[[Chance, int], Inputs]:
    def draw(chance: Chance, batch: int) -> Inputs:
        return {"input_ids": chance.integers(0, vocabulary, (batch, sequence))}

    return draw


def sentences(sequence: int, vocabulary: int) -> Callable[[Chance, int], Inputs]:
    """Give ids, a mask that ends between half of the sequence and all of it, and types."""

    def draw(chance: Chance, batch: int) -> Inputs:
        ends = chance.integers(sequence // 2, sequence + 1, (batch, 1))
        shape = (batch, sequence)
        return {
            "input_ids": chance.integers(0, vocabulary, shape),
            "attention_mask": (np.arange(sequence) < ends).astype(np.int64),
            "token_type_ids": np.zeros(shape, np.int64),
        }

    return draw


BOTH = ("batch", "sequence")
MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("resnet50", resnet50, images(224)),
        Model("mobilenet_v2", mobilenet_v2, images(224)),
        Model("mobilenet_v3_large", mobilenet_v3_large, images(224)),
        Model("efficientnet_b0", efficientnet_b0, images(224)),
        Model("densenet121", densenet121, images(224)),
        Model("shufflenet_v2", shufflenet_v2, images(224)),
        Model("unet", unet, images(256)),
        Model("yolo", yolo, images(320)),
        Model("bert_base", bert_base, sentences(128, 30_522), BOTH),
        Model("minilm_l6", minilm_l6, sentences(128, 30_522), BOTH),
        Model("vit_small", vit_small, images(224)),
        Model("gpt2_like", gpt2_like, tokens(128, 8192), BOTH),
        Model("lstm_tagger", lstm_tagger, tokens(64, 10_000), BOTH),
    )
}


def dim(text: str) -> Dim:
    """Parse a batch: a number from 1 on, or a name for a symbolic one."""
    if text.isidentifier():
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 1 on nor a name")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        epilog=f"models: {', '.join(MODELS)}",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="a model, or all")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--batch", type=dim, default=1, help="a number, or a name: symbolic")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    names = list(MODELS) if "all" in arguments.names else arguments.names
    unknown = sorted(set(names) - set(MODELS))
    if unknown:
        parser.error(f"unknown models {', '.join(unknown)}; there are {', '.join(MODELS)}")
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    for name in names:
        file = arguments.output_dir / f"{name}.onnx"
        onnx.save(MODELS[name].build(batch=arguments.batch, seed=arguments.seed), file)
        print(f"{file}: {file.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
