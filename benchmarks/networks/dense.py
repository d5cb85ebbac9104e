"""Networks that answer for every place of an image: a U-Net and a YOLO-like detector."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from networks.builder import Dim
from networks.maps import Maps
from networks.vision import BESIDE_SHORTCUT, ClassifierBuilder


def unet(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 256,
    width: int = 32,
    depth: int = 4,
    classes: int = 2,
) -> onnx.ModelProto:
    """U-Net with two 3x3 convolutions a level; size is a multiple of 2 ** depth.

    Output mask: (batch, classes, size, size), logits.
    """
    net = ClassifierBuilder("unet", seed)

    def level(x: Maps, channels: int) -> Maps:
        y = net.normed_conv(x, channels, 3, then=net.relu)
        return net.normed_conv(y, channels, 3, then=net.relu)

    x = level(net.image(batch, size), width)
    passed = []
    for step in range(depth):
        passed.append(x)
        x = level(net.max_pool(x, 2, 2), width << step + 1)
    for step in reversed(range(depth)):
        x = level(net.concat(net.doubling_conv(x, width << step), passed.pop()), width << step)
    mask = net.conv(x, classes, bias=True)
    net.output(mask.name, "mask", [batch, classes, size, size])
    return net.model()


def _cross_stage(net: ClassifierBuilder, x: Maps, channels: int, count: int, short: bool) -> Maps:
    """Split, run one half through bottlenecks, and join all that was seen on the way."""
    parts = list(net.halves(net.normed_conv(x, channels, then=net.silu)))
    for _ in range(count):
        y = net.normed_conv(parts[-1], channels // 2, 3, then=net.silu)
        scale = BESIDE_SHORTCUT if short else 1
        y = net.normed_conv(y, channels // 2, 3, then=net.silu, scale=scale)
        parts.append(net.add(parts[-1], y) if short else y)
    return net.normed_conv(net.concat(*parts), channels, then=net.silu)


def _pooled_pyramid(net: ClassifierBuilder, x: Maps) -> Maps:
    parts = [net.normed_conv(x, x.channels // 2, then=net.silu)]
    for _ in range(3):
        parts.append(net.max_pool(parts[-1], 5, 1))
    return net.normed_conv(net.concat(*parts), x.channels, then=net.silu)


def _backbone(net: ClassifierBuilder, x: Maps, width: int) -> list[Maps]:
    """Give the features at an 8th, a 16th and a 32nd of the size."""
    x = net.normed_conv(x, width, 3, 2, then=net.silu)
    seen = []
    for step, count in enumerate((1, 2, 2, 1), start=1):
        x = net.normed_conv(x, width << step, 3, 2, then=net.silu)
        x = _cross_stage(net, x, width << step, count, short=True)
        seen.append(x)
    return [seen[1], seen[2], _pooled_pyramid(net, seen[3])]


def _neck(net: ClassifierBuilder, features: Sequence[Maps]) -> list[Maps]:
    """Carry the coarse features to the fine ones, and back."""
    fine, middle, coarse = features
    joined = net.concat(net.doubled(coarse), middle)
    between = _cross_stage(net, joined, middle.channels, 1, short=False)
    first = _cross_stage(net, net.concat(net.doubled(between), fine), fine.channels, 1, short=False)
    down = net.normed_conv(first, first.channels, 3, 2, then=net.silu)
    second = _cross_stage(net, net.concat(down, between), middle.channels, 1, short=False)
    down = net.normed_conv(second, second.channels, 3, 2, then=net.silu)
    third = _cross_stage(net, net.concat(down, coarse), coarse.channels, 1, short=False)
    return [first, second, third]


def yolo(
    batch: Dim = 1, seed: int = 0, size: int = 320, width: int = 16, classes: int = 80
) -> onnx.ModelProto:
    """Detector with three heads; size is a multiple of 32.

    Output predictions: (batch, 4 + classes, places), boxes and then scores between 0 and 1; a place
    for every 8, 16 and 32 pixels each way.
    """
    net = ClassifierBuilder("yolo", seed)
    heads, places = [], 0
    for x in _neck(net, _backbone(net, net.image(batch, size), width)):
        box = net.normed_conv(x, max(16, width * 2), 3, then=net.silu)
        score = net.normed_conv(x, max(16, width * 4), 3, then=net.silu)
        joined = net.concat(net.conv(box, 4, bias=True), net.conv(score, classes, bias=True))
        heads.append(net.node("Reshape", joined.name, net.integers(0, 4 + classes, -1)))
        places += joined.size**2
    all_heads = net.node("Concat", *heads, axis=2)
    boxes, scores = net.nodes("Split", [all_heads, net.integers(4, classes)], 2, axis=1)
    predictions = net.node("Concat", boxes, net.node("Sigmoid", scores), axis=1)
    net.output(predictions, "predictions", [batch, 4 + classes, places])
    return net.model()
