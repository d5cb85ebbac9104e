"""ResNet-50 and BERT-base in torch, with random weights, as its users write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["bert_base", "resnet50"]

BLOCKS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Inner channels, blocks, stride of the first one."""
WIDTH, HEADS, HIDDEN, LAYERS, VOCABULARY, POSITIONS = 768, 12, 3072, 12, 30_522, 512


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    """Make a convolution with batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut; the stride sits in the second."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = inner * 4
        self.reduce = conv(inputs, inner)
        self.spatial = conv(inner, inner, 3, stride)
        self.expand = conv(inner, outputs)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else conv(inputs, outputs, 1, stride)

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.reduce(x))
        y = functional.relu(self.spatial(y))
        return functional.relu(self.expand(y) + self.shortcut(x))


def resnet50() -> nn.Module:
    """Make ResNet-50 v1.5: (n, 3, 224, 224) -> (n, 1000)."""
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for inner, count, first_stride in BLOCKS:
        for block in range(count):
            layers.append(Bottleneck(channels, inner, 1 if block else first_stride))
            channels = inner * 4
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers)


class EncoderLayer(nn.Module):
    """Attention and a feed-forward part, each with its norm behind the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])

    def forward(self, x: Any, mask: Any) -> Any:
        batch, sequence, _ = x.shape
        heads = self.joined(x).view(batch, sequence, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = mixed.transpose(1, 2).reshape(batch, sequence, WIDTH)
        x = self.norms[0](x + self.out(mixed))
        return self.norms[1](x + self.second(functional.gelu(self.first(x))))


class Bert(nn.Module):
    """Embeddings and twelve layers: ids, mask and types, (n, sequence) -> (n, sequence, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([EncoderLayer() for _ in range(LAYERS)])

    def forward(self, ids: Any, attention_mask: Any, types: Any) -> Any:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(places) + self.types(types))
        added = (1 - attention_mask[:, None, None, :].to(x.dtype)) * -10_000
        for layer in self.layers:
            x = layer(x, added)
        return x


def bert_base() -> nn.Module:
    """Make BERT-base without its pooler."""
    return Bert()
