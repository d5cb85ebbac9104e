"""Decompositions by operator, and one node's composition made by its."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..graph import Node, Value
from ..graph.operator_families import OperatorFamilies
from .composition import Composition, CompositionError, Infer

__all__ = ["CONTRIB", "Decomposition", "compose", "decomposition", "find_decomposition"]

CONTRIB = "com.microsoft"
"""The domain of onnxruntime's own operators."""

FAMILIES = {
    "attention": (
        "com.microsoft::Attention com.microsoft::MultiHeadAttention com.microsoft::RotaryEmbedding"
    ),
    "features": "ai.onnx.ml::ArrayFeatureExtractor",
    "fused": (
        "SimplifiedLayerNormalization com.microsoft::BiasGelu "
        "com.microsoft::EmbedLayerNormalization com.microsoft::FastGelu com.microsoft::FusedConv "
        "com.microsoft::FusedGemm com.microsoft::FusedMatMul com.microsoft::Gelu "
        "com.microsoft::QuickGelu com.microsoft::SkipLayerNormalization "
        "com.microsoft::SkipSimplifiedLayerNormalization com.microsoft.nchwc::AveragePool "
        "com.microsoft.nchwc::Conv com.microsoft.nchwc::GlobalAveragePool "
        "com.microsoft.nchwc::GlobalMaxPool com.microsoft.nchwc::MaxPool "
        "com.microsoft.nchwc::ReorderInput com.microsoft.nchwc::ReorderOutput "
        "com.microsoft.nchwc::Upsample"
    ),
    "grouped_attention": "com.microsoft::GroupQueryAttention",
    "label_texts": "ai.onnx.ml::SVMClassifier ai.onnx.ml::TreeEnsembleClassifier",
    "linear": (
        "ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor ai.onnx.ml::Normalizer "
        "ai.onnx.ml::Scaler"
    ),
    "packed_weights": "com.microsoft::MatMulNBits",
    "quantized": (
        "com.microsoft::DynamicQuantizeMatMul com.microsoft::MatMulIntegerToFloat "
        "com.microsoft::QGemm com.microsoft::QLinearAdd com.microsoft::QLinearAveragePool "
        "com.microsoft::QLinearConcat com.microsoft::QLinearGlobalAveragePool "
        "com.microsoft::QLinearLeakyRelu com.microsoft::QLinearMul "
        "com.microsoft::QLinearReduceMean com.microsoft::QLinearSigmoid "
        "com.microsoft::QLinearSoftmax com.microsoft::QLinearWhere"
    ),
    "quantized_layers": "com.microsoft::DynamicQuantizeLSTM com.microsoft::QAttention",
    "stored_images": (
        "com.microsoft::DequantizeLinear com.microsoft::NhwcMaxPool com.microsoft::QLinearConv "
        "com.microsoft::QuantizeLinear"
    ),
}
"""The operators that each module of this package registers decompositions for."""

_WITHOUT_DOMAIN = frozenset({"SimplifiedLayerNormalization"})
"""Operators of onnxruntime that its optimizer writes as if they were ONNX's."""

Decomposition = Callable[[Composition], Sequence[Value | None]]
"""Adds the nodes and returns a value for each output; fewer, or None, where one is not made.

Raises CompositionError for what cannot be written with ONNX's operators.
"""

_families = OperatorFamilies(__package__, FAMILIES)
_decompositions: dict[tuple[str, str], Decomposition] = {}


def decomposition(
    *op_types: str, domain: str = CONTRIB
) -> Callable[[Decomposition], Decomposition]:
    """Register a function as the decomposition of these operators."""

    def register(function: Decomposition) -> Decomposition:
        for op_type in op_types:
            if (domain, op_type) in _decompositions:
                raise ValueError(f"{domain}::{op_type} has two decompositions")
            _decompositions[domain, op_type] = function
        return function

    return register


def find_decomposition(node: Node) -> Decomposition | None:
    """Find the decomposition of a node's operator; None if there is none."""
    if not node.domain and node.op_type not in _WITHOUT_DOMAIN:
        return None
    _families.load(node.domain, node.op_type)
    return _decompositions.get((node.domain, node.op_type))


def decompositions() -> dict[tuple[str, str], Decomposition]:
    """Return all of them by domain and operator; read only."""
    _families.load_all()
    return _decompositions


def compose(
    node: Node,
    inputs: Sequence[Value | None],
    infer: Infer,
    whole_ops: Collection[str] = (),
) -> tuple[Composition, list[Value | None]]:
    """Return what a node is made of, and the values that are its outputs, None for unused ones.

    ``inputs`` are used in its place; ``whole_ops`` are those of Composition. Raises
    CompositionError, and what ``infer`` raises; then nothing that was made uses a value any more.
    O(nodes made).
    """
    function = find_decomposition(node)
    if function is None:
        raise CompositionError("it has no decomposition")
    made = Composition(node, inputs, infer, whole_ops)
    try:
        found = list(function(made))
        found += [None] * (len(node.outputs) - len(found))
        for index, (old, new) in enumerate(zip(node.outputs, found, strict=False)):
            if new is None and (old.uses or old.is_graph_output):
                raise CompositionError(f"output {index} is not made")
            if new is not None and new.producer not in made.nodes:
                raise CompositionError(f"output {index} is made by no node")
    except BaseException:
        made.discard()
        raise
    return made, found[: len(node.outputs)]
