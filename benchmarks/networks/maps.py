"""Layers of convolutional networks, as an exporter writes them in evaluation mode.

Sample images flow along while the graph is written: each BatchNormalization gets the statistics
of what reaches it, as a trained one has, so that activations stay at unit scale at any depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from networks.builder import Builder, Dim, Floats


@dataclass(frozen=True)
class Maps:
    """A value of the graph, and what it is for the sample: (count, channels, size, size)."""

    name: str
    sample: Floats

    @property
    def channels(self) -> int:
        return int(self.sample.shape[1])

    @property
    def size(self) -> int:
        return int(self.sample.shape[2])


def draw_images(chance: np.random.Generator, batch: int, channels: int, size: int) -> Floats:
    """Draw images (batch, channels, size, size) at unit scale, with large shapes and fine grain."""
    coarse = chance.standard_normal((batch, channels, 8, 8), np.float32)
    scale = -(-size // 8)
    large = coarse.repeat(scale, axis=2).repeat(scale, axis=3)[..., :size, :size]
    fine = chance.standard_normal((batch, channels, size, size), np.float32)
    return np.ascontiguousarray((large + fine) / np.float32(math.sqrt(2)))


def sigmoid(x: Floats) -> Floats:
    return np.reciprocal(np.float32(1) + np.exp(-x))


def hard_sigmoid(x: Floats) -> Floats:
    return np.clip(x / 6 + np.float32(0.5), np.float32(0), np.float32(1))


class ImageBuilder(Builder):
    """Each method adds nodes and returns what they make."""

    def image(self, batch: Dim, size: int, channels: int = 3) -> Maps:
        name = self.input("image", [batch, channels, size, size])
        count = max(1, 50_000 // size**2)  # the coarsest maps still have about 50 places
        return Maps(name, draw_images(self.chance, count, channels, size))

    def conv(
        self,
        x: Maps,
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> Maps:
        """Convolve with He's weights, padded so that stride 1 keeps the size.

        groups: 1, or one for each channel.
        """
        inner = x.channels // groups
        deviation = math.sqrt(2 / (inner * kernel**2))
        weights = self.normal((channels, inner, kernel, kernel), deviation)
        offsets = self.normal((channels,), 0.1) if bias else None
        pad = kernel // 2
        windows = _windows(x.sample, kernel, stride, pad)
        sample = _convolved(windows, weights) if groups == 1 else _convolved_each(windows, weights)
        inputs = [x.name, self.constant(weights)]
        if offsets is not None:
            inputs.append(self.constant(offsets))
            sample = sample + offsets[:, None, None]
        shape = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        name = self.node("Conv", *inputs, group=groups, dilations=[1, 1], **shape)
        return Maps(name, sample)

    def doubling_conv(self, x: Maps, channels: int) -> Maps:
        """Double the size by a transposed convolution whose windows do not overlap."""
        weights = self.normal((x.channels, channels, 2, 2), math.sqrt(2 / x.channels))
        offsets = self.normal((channels,), 0.1)
        inputs = [x.name, self.constant(weights), self.constant(offsets)]
        name = self.node("ConvTranspose", *inputs, kernel_shape=[2, 2], strides=[2, 2])
        blocks = np.tensordot(x.sample, weights, axes=([1], [0]))  # (count, h, w, channels, 2, 2)
        size = x.size * 2
        sample = blocks.transpose(0, 3, 1, 4, 2, 5).reshape(-1, channels, size, size)
        return Maps(name, sample + offsets[:, None, None])

    def batch_norm(self, x: Maps, scale: float = 1.0, shift: float = 0.0) -> Maps:
        """Normalise with about the sample's statistics; scales and shifts are near the given."""
        scales = self.chance.uniform(0.8, 1.25, x.channels).astype(np.float32) * np.float32(scale)
        shifts = self.normal((x.channels,), 0.1) + np.float32(shift)
        variances = x.sample.var(axis=(0, 2, 3))
        # Few places tell little of a channel's variance, so it is drawn towards all channels'.
        variance = (variances + variances.mean()) / 2 + np.float32(1e-3)
        mean = x.sample.mean(axis=(0, 2, 3))
        inputs = [self.constant(array) for array in (scales, shifts, mean, variance)]
        name = self.node("BatchNormalization", x.name, *inputs, epsilon=1e-5)
        factor = scales / np.sqrt(variance + np.float32(1e-5))
        centred = x.sample - mean[:, None, None]
        return Maps(name, centred * factor[:, None, None] + shifts[:, None, None])

    def elementwise(
        self, op: str, x: Maps, function: Callable[[Floats], Floats], **attributes: Any
    ) -> Maps:
        return Maps(self.node(op, x.name, **attributes), function(x.sample))

    def relu(self, x: Maps) -> Maps:
        return self.elementwise("Relu", x, lambda values: np.maximum(values, 0))

    def relu6(self, x: Maps) -> Maps:
        name = self.node("Clip", x.name, self.constant(0), self.constant(6))
        return Maps(name, np.clip(x.sample, 0, 6))

    def hard_swish(self, x: Maps) -> Maps:
        return self.elementwise("HardSwish", x, lambda values: values * hard_sigmoid(values))

    def hard_gate(self, x: Maps) -> Maps:
        return self.elementwise("HardSigmoid", x, hard_sigmoid, alpha=1 / 6, beta=0.5)

    def gate(self, x: Maps) -> Maps:
        return self.elementwise("Sigmoid", x, sigmoid)

    def silu(self, x: Maps) -> Maps:
        name = self.node("Mul", x.name, self.node("Sigmoid", x.name))
        return Maps(name, x.sample * sigmoid(x.sample))

    def add(self, x: Maps, y: Maps) -> Maps:
        return Maps(self.node("Add", x.name, y.name), x.sample + y.sample)

    def scaled(self, x: Maps, gate: Maps) -> Maps:
        """Multiply each channel by its gate, (batch, channels, 1, 1)."""
        return Maps(self.node("Mul", x.name, gate.name), x.sample * gate.sample)

    def concat(self, *parts: Maps) -> Maps:
        name = self.node("Concat", *(part.name for part in parts), axis=1)
        return Maps(name, np.concatenate([part.sample for part in parts], axis=1))

    def halves(self, x: Maps) -> tuple[Maps, Maps]:
        """Split the channels, which are an even number."""
        half = x.channels // 2
        first, second = self.nodes("Split", [x.name, self.integers(half, half)], 2, axis=1)
        return Maps(first, x.sample[:, :half]), Maps(second, x.sample[:, half:])

    def shuffled(self, x: Maps) -> Maps:
        """Interleave the two halves of the channels."""
        shapes = ((-1, 2, x.channels // 2, x.size, x.size), (-1, x.channels, x.size, x.size))
        perm = (0, 2, 1, 3, 4)
        split = self.node("Reshape", x.name, self.integers(*shapes[0]))
        turned = self.node("Transpose", split, perm=perm)
        name = self.node("Reshape", turned, self.integers(*shapes[1]))
        return Maps(name, x.sample.reshape(shapes[0]).transpose(perm).reshape(shapes[1]))

    def max_pool(self, x: Maps, kernel: int, stride: int) -> Maps:
        pad = (kernel - 1) // 2
        shape = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        name = self.node("MaxPool", x.name, **shape)
        return Maps(name, _windows(x.sample, kernel, stride, pad, -np.inf).max(axis=(4, 5)))

    def average_pool(self, x: Maps) -> Maps:
        """Halve the size."""
        name = self.node("AveragePool", x.name, kernel_shape=[2, 2], strides=[2, 2])
        return Maps(name, _windows(x.sample, 2, 2, 0).mean(axis=(4, 5)))

    def doubled(self, x: Maps) -> Maps:
        """Repeat each place twice each way."""
        scales = self.constant([1, 1, 2, 2])
        nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        name = self.node("Resize", x.name, "", scales, mode="nearest", **nearest)
        return Maps(name, x.sample.repeat(2, axis=2).repeat(2, axis=3))

    def global_average_pool(self, x: Maps) -> Maps:
        name = self.node("GlobalAveragePool", x.name)
        return Maps(name, x.sample.mean(axis=(2, 3), keepdims=True))

    def flatten(self, x: Maps) -> Maps:
        """Make vectors, (batch, channels), of maps of size 1."""
        return Maps(self.node("Flatten", x.name, axis=1), x.sample)

    def linear(self, x: Maps, features: int) -> Maps:
        """Multiply vectors, (batch, channels), by Xavier's weights, with a bias."""
        weights = self.normal((features, x.channels), math.sqrt(1 / x.channels))
        offsets = self.normal((features,), 0.1)
        inputs = [x.name, self.constant(weights), self.constant(offsets)]
        sample = x.sample.reshape(-1, x.channels) @ weights.T + offsets
        return Maps(self.node("Gemm", *inputs, transB=1), sample[:, :, None, None])


def _windows(x: Floats, kernel: int, stride: int, pad: int, fill: float = 0.0) -> Floats:
    """View the windows of images: (count, channels, height, width, kernel, kernel)."""
    edges = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    padded = np.pad(x, edges, constant_values=fill) if pad else x
    return sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


def _convolved(windows: Floats, weights: Floats) -> Floats:
    flat = np.tensordot(windows, weights, axes=([1, 4, 5], [1, 2, 3]))
    return np.ascontiguousarray(flat.transpose(0, 3, 1, 2))


def _convolved_each(windows: Floats, weights: Floats) -> Floats:
    """Convolve each channel with weights of its own, (channels, 1, kernel, kernel)."""
    kernel = weights.shape[-1]
    total = np.zeros(windows.shape[:4], np.float32)
    for row in range(kernel):
        for column in range(kernel):
            total += windows[..., row, column] * weights[:, 0, row, column, None, None]
    return total
