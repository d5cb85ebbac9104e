"""Image classifiers: convolutional networks as exporters write them, (batch, 3, size, size) in."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from networks.builder import Dim
from networks.maps import ImageBuilder, Maps

Activation = Callable[[Maps], Maps]

# Random deep networks enlarge the smallest differences; trained ones hardly do. So activations get
# inputs that are mostly above 0, and what is added to a shortcut is smaller than the shortcut.
BEFORE_ACTIVATION = 1.0
BESIDE_SHORTCUT = 0.3


class ClassifierBuilder(ImageBuilder):
    """Blocks that several of the classifiers share."""

    def normed_conv(
        self,
        x: Maps,
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        then: Activation | None = None,
        scale: float = 1.0,
    ) -> Maps:
        """Conv, BatchNormalization and, if given, an activation."""
        convolved = self.conv(x, channels, kernel, stride, groups)
        if then is None:
            return self.batch_norm(convolved, scale)
        return then(self.batch_norm(convolved, scale, BEFORE_ACTIVATION))

    def normed(self, x: Maps) -> Maps:
        """BatchNormalization before an activation."""
        return self.batch_norm(x, shift=BEFORE_ACTIVATION)

    def squeeze_excite(
        self, x: Maps, squeezed: int, then: Activation, gate: Callable[[Maps], Maps]
    ) -> Maps:
        pooled = self.global_average_pool(x)
        inner = then(self.conv(pooled, squeezed, bias=True))
        return self.scaled(x, gate(self.conv(inner, x.channels, bias=True)))

    def finish(self, logits: Maps, batch: Dim) -> onnx.ModelProto:
        self.output(logits.name, "logits", [batch, logits.channels])
        return self.model()

    def pooled(self, x: Maps) -> Maps:
        return self.flatten(self.global_average_pool(x))


def resnet50(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 224,
    width: int = 64,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    classes: int = 1000,
) -> onnx.ModelProto:
    """ResNet v1.5: the stride sits in the 3x3 convolution of a bottleneck."""
    net = ClassifierBuilder("resnet50", seed)
    x = net.normed_conv(net.image(batch, size), width, 7, 2, then=net.relu)
    x = net.max_pool(x, 3, 2)
    for stage, count in enumerate(blocks):
        inner = width << stage
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            y = net.normed_conv(x, inner, then=net.relu)
            y = net.normed_conv(y, inner, 3, stride, then=net.relu)
            y = net.normed_conv(y, inner * 4, scale=BESIDE_SHORTCUT)
            short = x if block else net.normed_conv(x, inner * 4, 1, stride)
            x = net.relu(net.add(y, short))
    return net.finish(net.linear(net.pooled(x), classes), batch)


# expansion, channels, blocks, stride of the first block
MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 224,
    stages: tuple[tuple[int, int, int, int], ...] = MOBILENET_V2,
    features: int = 1280,
    classes: int = 1000,
) -> onnx.ModelProto:
    net = ClassifierBuilder("mobilenet_v2", seed)
    x = net.normed_conv(net.image(batch, size), 32, 3, 2, then=net.relu6)
    for expansion, channels, count, first_stride in stages:
        for block in range(count):
            stride = 1 if block else first_stride
            inner = x.channels * expansion
            y = x if expansion == 1 else net.normed_conv(x, inner, then=net.relu6)
            y = net.normed_conv(y, inner, 3, stride, inner, net.relu6)
            y = net.normed_conv(y, channels, scale=BESIDE_SHORTCUT if block else 1)
            x = net.add(x, y) if block else y
    x = net.normed_conv(x, features, then=net.relu6)
    return net.finish(net.linear(net.pooled(x), classes), batch)


# kernel, expanded, channels, squeeze and excite, hard swish (or ReLU), stride
MOBILENET_V3_LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def mobilenet_v3_large(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 224,
    blocks: tuple[tuple[int, int, int, bool, bool, int], ...] = MOBILENET_V3_LARGE,
    features: int = 1280,
    classes: int = 1000,
) -> onnx.ModelProto:
    net = ClassifierBuilder("mobilenet_v3_large", seed)
    x = net.normed_conv(net.image(batch, size), 16, 3, 2, then=net.hard_swish)
    for kernel, inner, channels, has_gate, is_swish, stride in blocks:
        then = net.hard_swish if is_swish else net.relu
        y = x if inner == x.channels else net.normed_conv(x, inner, then=then)
        y = net.normed_conv(y, inner, kernel, stride, inner, then)
        if has_gate:
            y = net.squeeze_excite(y, max(8, inner // 4 // 8 * 8), net.relu, net.hard_gate)
        has_short = stride == 1 and channels == x.channels
        y = net.normed_conv(y, channels, scale=BESIDE_SHORTCUT if has_short else 1)
        x = net.add(x, y) if has_short else y
    x = net.normed_conv(x, blocks[-1][1], then=net.hard_swish)
    hidden = net.hard_swish(net.linear(net.pooled(x), features))
    return net.finish(net.linear(hidden, classes), batch)


# expansion, channels, blocks, stride of the first block, kernel
EFFICIENTNET_B0 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet_b0(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 224,
    stages: tuple[tuple[int, int, int, int, int], ...] = EFFICIENTNET_B0,
    features: int = 1280,
    classes: int = 1000,
) -> onnx.ModelProto:
    net = ClassifierBuilder("efficientnet_b0", seed)
    x = net.normed_conv(net.image(batch, size), 32, 3, 2, then=net.silu)
    for expansion, channels, count, first_stride, kernel in stages:
        for block in range(count):
            stride = 1 if block else first_stride
            inner, squeezed = x.channels * expansion, max(1, x.channels // 4)
            y = x if expansion == 1 else net.normed_conv(x, inner, then=net.silu)
            y = net.normed_conv(y, inner, kernel, stride, inner, net.silu)
            y = net.squeeze_excite(y, squeezed, net.silu, net.gate)
            y = net.normed_conv(y, channels, scale=BESIDE_SHORTCUT if block else 1)
            x = net.add(x, y) if block else y
    x = net.normed_conv(x, features, then=net.silu)
    return net.finish(net.linear(net.pooled(x), classes), batch)


def densenet121(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 224,
    growth: int = 32,
    blocks: tuple[int, ...] = (6, 12, 24, 16),
    classes: int = 1000,
) -> onnx.ModelProto:
    """DenseNet: BatchNormalization and ReLU come before each convolution."""
    net = ClassifierBuilder("densenet121", seed)
    x = net.normed_conv(net.image(batch, size), growth * 2, 7, 2, then=net.relu)
    x = net.max_pool(x, 3, 2)
    for stage, count in enumerate(blocks):
        parts = [x]
        for _ in range(count):
            joined = net.concat(*parts) if len(parts) > 1 else parts[0]
            y = net.conv(net.relu(net.normed(joined)), growth * 4)
            parts.append(net.conv(net.relu(net.normed(y)), growth, 3))
        x = net.relu(net.normed(net.concat(*parts)))
        if stage + 1 < len(blocks):
            x = net.average_pool(net.conv(x, x.channels // 2))
    return net.finish(net.linear(net.pooled(x), classes), batch)


def shufflenet_v2(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 224,
    channels: tuple[int, ...] = (116, 232, 464),
    blocks: tuple[int, ...] = (4, 8, 4),
    features: int = 1024,
    classes: int = 1000,
) -> onnx.ModelProto:
    net = ClassifierBuilder("shufflenet_v2", seed)
    x = net.normed_conv(net.image(batch, size), 24, 3, 2, then=net.relu)
    x = net.max_pool(x, 3, 2)
    for wide, count in zip(channels, blocks, strict=True):
        half = wide // 2
        for block in range(count):
            if block:
                short, y = net.halves(x)
            else:
                short = net.normed_conv(x, x.channels, 3, 2, x.channels)
                short, y = net.normed_conv(short, half, then=net.relu), x
            y = net.normed_conv(y, half, then=net.relu)
            y = net.normed_conv(y, half, 3, 1 if block else 2, half)
            y = net.normed_conv(y, half, then=net.relu)
            x = net.shuffled(net.concat(short, y))
    x = net.normed_conv(x, features, then=net.relu)
    return net.finish(net.linear(net.pooled(x), classes), batch)
