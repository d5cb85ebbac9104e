"""Train the demo's digit classifier and write digits.onnx and digits_heldout.npz.

Needs `pip install torch scikit-learn onnx`, best in an environment of its own: the demo reads the
two files that lie beside this script and needs neither torch nor scikit-learn. A run takes well
under a minute on one core; on the same machine with the same versions it gives the same bytes.

digits.onnx: input `image`, float32 (batch, 1, 8, 8), values 0..16 as the data set has them; output
`logits`, float32 (batch, 10). digits_heldout.npz: `images`, float32 (360, 1, 8, 8), and `labels`,
int64 (360,): a stratified sample that took no part in training.

Data: the 1797 images that `sklearn.datasets.load_digits` ships, from E. Alpaydin and C. Kaynak,
"Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998, CC BY 4.0,
https://doi.org/10.24432/C50P49.
"""

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

SEED = 20
HELD_OUT_COUNT = 360
EPOCHS = 80
BATCH_SIZE = 64
PEAK_LEARNING_RATE = 4e-3

PIXEL_FACTOR = 1 / 16  # pixels are 0..16; a power of two, so the scaling is exact
IR_VERSION = 8
OPSET = 17

FloatArray = NDArray[np.float32]
LabelArray = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Images float32 (n, 1, 8, 8) with values 0..16, and their labels int64 (n,)."""

    images: FloatArray
    labels: LabelArray


def load_splits() -> tuple[Split, Split]:
    """Give the training and the held-out part; each keeps the share that every digit has."""
    data = load_digits()
    images = data.images.astype(np.float32)[:, None]
    labels = data.target.astype(np.int64)
    train_images, held_out_images, train_labels, held_out_labels = train_test_split(
        images, labels, test_size=HELD_OUT_COUNT, stratify=labels, random_state=SEED
    )
    return Split(train_images, train_labels), Split(held_out_images, held_out_labels)


def build_layers() -> nn.ModuleDict:
    """Make the layers that have parameters, under the names of the nodes that `forward` runs."""
    return nn.ModuleDict(
        {
            "conv1": nn.Conv2d(1, 16, kernel_size=3, padding=1),
            "conv2": nn.Conv2d(16, 32, kernel_size=3, padding=1),
            "conv3": nn.Conv2d(32, 32, kernel_size=3, padding=1, bias=False),
            "norm3": nn.BatchNorm2d(32),
            "fc1": nn.Linear(32 * 4 * 4, 64),
            "fc2": nn.Linear(64, 10),
        }
    )


def forward(layers: nn.ModuleDict, image: torch.Tensor) -> torch.Tensor:
    """Compute logits (n, 10) from images (n, 1, 8, 8); `build_nodes` is the same in ONNX."""
    relu1 = functional.relu(layers["conv1"](image * PIXEL_FACTOR))
    relu2 = functional.relu(layers["conv2"](relu1))
    pool1 = functional.max_pool2d(relu2, 2)
    relu3 = functional.relu(layers["norm3"](layers["conv3"](pool1)) + pool1)
    hidden = functional.relu(layers["fc1"](relu3.flatten(1)))
    # fc1 holds two thirds of the weights, and 1437 images are few for them: hence the strong p.
    hidden = functional.dropout(hidden, p=0.4, training=layers.training)
    return layers["fc2"](hidden)


def distort(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Turn, scale and shift each image (n, 1, 8, 8) a little, at random; the input is kept."""

    def uniform(limit: float) -> torch.Tensor:
        return (torch.rand(len(images), generator=generator) * 2 - 1) * limit

    angle, scale = uniform(math.radians(12)), 1 + uniform(0.1)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    shift_x, shift_y = uniform(0.2), uniform(0.2)  # 8 pixels are 2 units: at most 0.8 of a pixel
    rows = [torch.stack([cos, -sin, shift_x], dim=1), torch.stack([sin, cos, shift_y], dim=1)]
    grid = functional.affine_grid(torch.stack(rows, dim=1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def batches(split: Split, generator: torch.Generator) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield one epoch of distorted images and their labels, in random order."""
    images, labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
    for chosen in torch.randperm(len(labels), generator=generator).split(BATCH_SIZE):
        yield distort(images[chosen], generator), labels[chosen]


def train(split: Split) -> nn.ModuleDict:
    """Fit the layers to the training part and return them in inference mode."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # sums over several threads would differ from machine to machine
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(SEED)
    layers = build_layers()
    optimizer = torch.optim.AdamW(layers.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=PEAK_LEARNING_RATE,
        total_steps=EPOCHS * math.ceil(len(split.labels) / BATCH_SIZE),
    )
    for epoch in range(EPOCHS):
        loss_sum = 0.0
        for images, labels in batches(split, generator):
            loss = functional.cross_entropy(forward(layers, images), labels, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            loss_sum += loss.item() * len(labels)
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1:2}: loss {loss_sum / len(split.labels):.4f}")
    return layers.eval()


def build_nodes() -> list[onnx.NodeProto]:
    """List the nodes in topological order; outputs are named as nodes are, but the last: logits."""
    same_3x3 = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    norm3_inputs = "conv3 norm3.weight norm3.bias norm3.running_mean norm3.running_var"
    rows: list[tuple[str, str, str, dict[str, Any]]] = [
        ("Mul", "scale", "image scale.factor", {}),
        ("Conv", "conv1", "scale conv1.weight conv1.bias", same_3x3),
        ("Relu", "relu1", "conv1", {}),
        ("Conv", "conv2", "relu1 conv2.weight conv2.bias", same_3x3),
        ("Relu", "relu2", "conv2", {}),
        ("MaxPool", "pool1", "relu2", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Conv", "conv3", "pool1 conv3.weight", same_3x3),
        ("BatchNormalization", "norm3", norm3_inputs, {"epsilon": 1e-5}),
        ("Add", "add3", "norm3 pool1", {}),
        ("Relu", "relu3", "add3", {}),
        ("Flatten", "flatten", "relu3", {"axis": 1}),
        ("Gemm", "fc1", "flatten fc1.weight fc1.bias", {"transB": 1}),
        ("Relu", "relu4", "fc1", {}),
        ("Gemm", "fc2", "relu4 fc2.weight fc2.bias", {"transB": 1}),
    ]
    nodes = [
        helper.make_node(op, inputs.split(), [name], name=name, **attributes)
        for op, name, inputs, attributes in rows
    ]
    nodes[-1].output[0] = "logits"
    return nodes


def build_model(parameters: Mapping[str, FloatArray]) -> onnx.ModelProto:
    """Give the checked ONNX model with these weights, named as in the layers' state."""
    weights = {"scale.factor": np.array(PIXEL_FACTOR, np.float32), **parameters}
    nodes = build_nodes()
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in used],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="aioinfer-examples"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def infer_in_batches(model: onnx.ModelProto, images: FloatArray, batch_size: int) -> FloatArray:
    """Run the model by the ONNX reference, batch_size images at a time; logits (n, 10)."""
    evaluator = ReferenceEvaluator(model)
    starts = range(0, len(images), batch_size)
    feeds = ({"image": images[start : start + batch_size]} for start in starts)
    return np.concatenate([logits for feed in feeds for logits in evaluator.run(["logits"], feed)])


def accuracy(logits: FloatArray, labels: LabelArray) -> float:
    """Give the share of rows whose largest logit is the label's."""
    return float(np.mean(logits.argmax(axis=1) == labels))


def main() -> None:
    """Train, write both files, read them back and print what they reach on the held-out part."""
    parser = argparse.ArgumentParser(description="Train the digit classifier of the demo.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="write here")
    folder: Path = parser.parse_args().folder
    model_path, held_out_path = folder / "digits.onnx", folder / "digits_heldout.npz"

    train_split, held_out = load_splits()
    layers = train(train_split)
    parameters = {name: tensor.numpy() for name, tensor in layers.state_dict().items()}
    onnx.save(build_model(parameters), model_path)
    np.savez_compressed(held_out_path, images=held_out.images, labels=held_out.labels)

    with torch.no_grad():
        expected = forward(layers, torch.from_numpy(held_out.images)).numpy()
    print(f"torch, held out: accuracy {accuracy(expected, held_out.labels):.4f}")
    model = onnx.load(model_path)
    with np.load(held_out_path) as saved:
        images, labels = saved["images"], saved["labels"]
    for batch_size in (1, HELD_OUT_COUNT):
        logits = infer_in_batches(model, images, batch_size)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
        print(f"ONNX, held out, batch {batch_size}: accuracy {accuracy(logits, labels):.4f}")
    for path in (model_path, held_out_path):
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
