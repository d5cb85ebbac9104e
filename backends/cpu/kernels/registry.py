"""The kernels of CPU by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.graph import DType, Graph, Node
from ....runtime.lowering.kernel_registry import KernelRegistry, OtherTypes

if TYPE_CHECKING:
    from ..plans.plan_builder import PlanBuilder

__all__ = [
    "BY_NUMPY",
    "FAMILIES",
    "FLOATS",
    "INTEGERS",
    "KERNELS",
    "NUMPY_OPERATORS",
    "kernel",
    "nodes_by_numpy",
]

FLOATS = frozenset({DType.FLOAT32})
"""What oneDNN computes in; other floating types are left to other devices."""

INTEGERS = frozenset(
    {
        DType.INT8,
        DType.INT16,
        DType.INT32,
        DType.INT64,
        DType.UINT8,
        DType.UINT16,
        DType.UINT32,
    }
)
"""What native kernels compute in; 64-bit integers hold them all, but not UINT64."""

FAMILIES = {
    "elementwise.binary": (
        "Add BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Div Max Mean Min Mod Mul PRelu "
        "Pow Sub Sum"
    ),
    "elementwise.casts": "Cast CastLike",
    "elementwise.comparison": "And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Where Xor",
    "elementwise.quantization": (
        "DequantizeLinear DynamicQuantizeLinear QuantizeLinear aioinfer.cpu::Int8Table"
    ),
    "elementwise.unary": (
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu "
        "HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu "
        "Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu "
        "aioinfer.cpu::Eltwise"
    ),
    "matrices.attention": "Attention aioinfer.cpu::Attention",
    "matrices.distances": "aioinfer.cpu::PairDistances",
    "matrices.int8_matmul": "aioinfer.cpu::Int8MatMul",
    "matrices.matmul": "Gemm MatMul aioinfer.cpu::Gemm aioinfer.cpu::MatMul",
    "matrices.packed_matmul": "aioinfer.cpu::PackedMatMul",
    "matrices.recurrent": "GRU LSTM RNN",
    "matrices.rotary": "RotaryEmbedding",
    "movement.copies": "Concat DepthToSpace Expand Gather SpaceToDepth Tile",
    "movement.pad": "Pad",
    "movement.pixel_shuffle": "aioinfer.cpu::PixelShuffle",
    "movement.resize": "Resize",
    "movement.shapes": "ConstantOfShape Range Shape Size",
    "movement.views": "Flatten Identity Reshape Slice Split Squeeze Transpose Unsqueeze",
    "normalization.normalization_channels": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN"
    ),
    "normalization.normalization_rows": (
        "LayerNormalization RMSNormalization aioinfer.cpu::LayerNormalization "
        "aioinfer.cpu::RMSNormalization"
    ),
    "normalization.positions": "ArgMax ArgMin TopK",
    "normalization.reductions": (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare"
    ),
    "normalization.softmax": "LogSoftmax Softmax",
    "numpy_operators": (
        "AffineGrid BitCast BlackmanWindow CenterCropPad Col2Im CumProd CumSum Det Einsum "
        "EyeLike GatherElements GatherND HammingWindow HannWindow Hardmax "
        "LpNormalization MatMulInteger MaxUnpool "
        "MelWeightMatrix OneHot ReverseSequence STFT ScatterElements ScatterND TensorScatter "
        "TfIdfVectorizer Trilu aioinfer.cpu::ByNumpy "
        "ai.onnx.ml::ArrayFeatureExtractor ai.onnx.ml::Binarizer ai.onnx.ml::FeatureVectorizer "
        "ai.onnx.ml::Imputer ai.onnx.ml::LabelEncoder ai.onnx.ml::LinearClassifier "
        "ai.onnx.ml::LinearRegressor ai.onnx.ml::Normalizer ai.onnx.ml::OneHotEncoder "
        "ai.onnx.ml::Scaler"
    ),
    "support_vectors": "ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor",
    "trees": (
        "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier "
        "ai.onnx.ml::TreeEnsembleRegressor"
    ),
    "user_kernels": "aioinfer.user::Kernel",
    "windows.convolution": "Conv aioinfer.cpu::Conv",
    "windows.transposed_convolution": "ConvTranspose aioinfer.cpu::ConvTranspose",
    "windows.int8_convolution": "aioinfer.cpu::Int8Conv",
    "windows.pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool",
    "windows.regions": "MaxRoiPool RoiAlign",
    "windows.samples": "GridSample",
}
"""The operators that each module of this package registers kernels for."""

NUMPY_OPERATORS = frozenset(FAMILIES["numpy_operators"].split())
"""Operators whose kernels are calls of numpy, whatever the types."""

BY_NUMPY = ("aioinfer.cpu", "ByNumpy")
"""What lowers a node of an operator that has kernels, but none for its type."""

KERNELS: KernelRegistry[PlanBuilder] = KernelRegistry(
    "CPU",
    __package__,
    FAMILIES,
    FLOATS,
    others=OtherTypes(BY_NUMPY, INTEGERS | {DType.BOOL, DType.FLOAT64, DType.UINT64}),
)

kernel = KERNELS.kernel


def nodes_by_numpy(graph: Graph) -> list[str]:
    """Name the nodes of a graph that a plan leaves to numpy, whatever its lengths. O(nodes).

    Of those with bodies, what computes other types in one.
    """
    found = []
    for node in graph.nodes:
        is_standard = node.domain in ("", "ai.onnx")
        key = node.op_type if is_standard else f"{node.domain}::{node.op_type}"
        if node.user_kernel is None and (key in NUMPY_OPERATORS or _has_other_types(node)):
            found.append(node.name)
    return found


def _has_other_types(node: Node) -> bool:
    return KERNELS.is_of_other_types(node) or any(
        _has_other_types(inner) for body in node.bodies() for inner in body.nodes
    )
