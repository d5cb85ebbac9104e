"""Small variants of the benchmarks' networks, which tests can afford to run."""

import functools
from collections.abc import Callable

import numpy as np
import onnx
from models import MODELS, Inputs, images, sentences, tokens
from networks import dense, language, vision

Build = Callable[..., onnx.ModelProto]
ENCODER = language.Encoder(layers=2, width=32, heads=4, hidden=64, vocabulary=50)
FUSED = language.Encoder(2, 32, 4, 64, vocabulary=50, fused_norm=True)
SIZE, TOKENS, BATCH = 64, 8, 2
IMAGES, WORDS = images(SIZE), tokens(TOKENS, 50)

SMALL: dict[str, Build] = {
    "resnet50": functools.partial(vision.resnet50, size=SIZE, width=8, blocks=(2, 1), classes=10),
    "mobilenet_v2": functools.partial(
        vision.mobilenet_v2, size=SIZE, stages=((1, 16, 1, 1), (6, 24, 2, 2)), features=32
    ),
    "mobilenet_v3_large": functools.partial(
        vision.mobilenet_v3_large,
        size=SIZE,
        blocks=(
            (3, 16, 16, False, False, 1),
            (5, 64, 24, True, True, 2),
            (5, 64, 24, True, True, 1),
        ),
        features=32,
    ),
    "efficientnet_b0": functools.partial(
        vision.efficientnet_b0, size=SIZE, stages=((1, 16, 1, 1, 3), (6, 24, 2, 2, 5))
    ),
    "densenet121": functools.partial(vision.densenet121, size=SIZE, growth=4, blocks=(2, 3)),
    "shufflenet_v2": functools.partial(
        vision.shufflenet_v2, size=SIZE, channels=(16, 32), blocks=(2, 2), features=32
    ),
    "unet": functools.partial(dense.unet, size=SIZE, width=4, depth=2),
    "yolo": functools.partial(dense.yolo, size=SIZE, width=4, classes=3),
    "bert_base": functools.partial(language.bert_base, kind=ENCODER),
    "minilm_l6": functools.partial(language.minilm_l6, kind=FUSED),
    "vit_small": functools.partial(language.vit_small, size=SIZE, kind=ENCODER, classes=10),
    "gpt2_like": functools.partial(language.gpt2_like, kind=ENCODER),
    "lstm_tagger": functools.partial(
        language.lstm_tagger, vocabulary=50, width=8, hidden=8, tags=4
    ),
}


def inputs_of(name: str) -> Inputs:
    chance = np.random.default_rng(1)
    if name in ("bert_base", "minilm_l6"):
        return sentences(TOKENS, 50)(chance, BATCH)
    return (WORDS if "sequence" in MODELS[name].dynamic else IMAGES)(chance, BATCH)
