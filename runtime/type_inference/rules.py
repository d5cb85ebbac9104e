"""Type rules: what types the outputs of one node have, by operator.

A rule stands at its definition::

    @type_rule("Relu", "Sigmoid")
    def like_first_input(node, contents): ...

It is called with a node whose inputs all have tensor types of known rank, and with what is known
of the content of small integer tensors. It gives one type for each output, or None where it cannot
tell: onnx is asked then. Where the node contradicts itself it raises ContradictionError with the
reason, and onnx is not asked. Rules are those of the newest opset. They are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import AioInferError, ModelError
from ..graph import Node, TensorType
from ..graph.operator_families import OperatorFamilies
from .content.shape_content import ShapeContent
from .contradiction import ContradictionError, contradiction_of
from .one_type import require_one_type

__all__ = ["STANDARD_DOMAINS", "TypeRule", "find_rule", "type_rule"]

FAMILIES = {
    "attention_types": "Attention",
    "convolution_types": (
        "AveragePool Conv ConvInteger ConvTranspose DeformConv GlobalAveragePool GlobalLpPool "
        "GlobalMaxPool LpPool MaxPool MaxUnpool QLinearConv"
    ),
    "decomposed_types": ("SimplifiedLayerNormalization com.microsoft::* com.microsoft.nchwc::*"),
    "elementwise_types": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot "
        "BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh CumProd CumSum Div Dropout "
        "Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Hardmax "
        "Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax Max Mean Min Mish Mod Mul "
        "Neg Not Or PRelu Pow Reciprocal RegexFullMatch Relu Round Selu Shrink Sigmoid Sign Sin "
        "Sinh Softmax Softplus Softsign Sqrt StringConcat Sub Sum Swish Tan Tanh ThresholdedRelu "
        "Trilu Where Xor"
    ),
    "data_dependent_types": "Compress NonMaxSuppression NonZero Unique",
    "indexing_types": (
        "Gather GatherElements GatherND OneHot ScatterElements ScatterND TensorScatter TopK"
    ),
    "movement_types": (
        "CenterCropPad Concat DepthToSpace Expand Flatten Pad Reshape Resize ReverseSequence Slice "
        "SpaceToDepth Split Squeeze Tile Transpose Unsqueeze"
    ),
    "normalization_types": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization "
        "LpNormalization MeanVarianceNormalization RMSNormalization RotaryEmbedding"
    ),
    "matmul_types": "Einsum Gemm MatMul MatMulInteger QLinearMatMul",
    "ml_types": (
        "TfIdfVectorizer ai.onnx.ml::ArrayFeatureExtractor ai.onnx.ml::Binarizer "
        "ai.onnx.ml::FeatureVectorizer ai.onnx.ml::Imputer ai.onnx.ml::LabelEncoder "
        "ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor ai.onnx.ml::Normalizer "
        "ai.onnx.ml::OneHotEncoder "
        "ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor ai.onnx.ml::Scaler"
    ),
    "quantization_types": "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
    "random_types": (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
    "recurrent_types": "GRU LSTM RNN",
    "reduction_types": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "sampling_types": "AffineGrid Col2Im Det GridSample MaxRoiPool RoiAlign",
    "shape_types": "Constant ConstantOfShape EyeLike Range Shape Size",
    "spectral_types": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    "tree_types": (
        "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier "
        "ai.onnx.ml::TreeEnsembleRegressor"
    ),
}
"""The operators that each module of ``families`` registers rules for."""

STANDARD_DOMAINS = frozenset({"", "ai.onnx.ml"})
"""Whose operators are known to be functions, and have inference."""

TypeRule = Callable[[Node, ShapeContent], Sequence[TensorType | None] | None]

_families = OperatorFamilies(f"{__package__}.families", FAMILIES)
_rules: dict[tuple[str, str], TypeRule] = {}


def find_rule(node: Node) -> TypeRule | None:
    """Find the rule of a node's operator; None if there is none."""
    _families.load(node.domain, node.op_type)
    return _rules.get((node.domain, node.op_type))


def type_rule(*op_types: str, domain: str = "") -> Callable[[TypeRule], TypeRule]:
    """Register a function as the rule of these operators; backends may, for domains of theirs.

    The rule that a lookup finds raises errors that name the node.
    """

    def register(rule: TypeRule) -> TypeRule:
        for op_type in op_types:
            if (domain, op_type) in _rules:
                raise ValueError(f"{op_type} has two type rules")
            _rules[domain, op_type] = _naming_its_node(rule)
        return rule

    return register


def _naming_its_node(rule: TypeRule) -> TypeRule:
    def named(node: Node, contents: ShapeContent) -> Sequence[TensorType | None] | None:
        try:
            require_one_type(node)
            return rule(node, contents)
        except ContradictionError as reason:
            raise contradiction_of(node, str(reason)) from None
        except (AioInferError, MemoryError):
            raise
        except Exception as error:  # what is odd in a way that the rule has not thought of
            raise ModelError(
                f"the types of {node.op} (node {node.name!r}) cannot be inferred, its attributes "
                f"or inputs are not what the operator has: {error!r}",
                node=node.name,
                op=node.op,
            ) from error

    return named
