"""The kernels that all accelerators share, by operator; a device may add its own to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.lowering.kernel_registry import KernelRegistry
from ..elementwise.c_types import FLOATS as FLOATS

if TYPE_CHECKING:
    from ..plan_builder import PlanBuilder

__all__ = ["FAMILIES", "FLOATS", "KERNELS", "kernel"]

FAMILIES = {
    "attention": "aioinfer.accelerator::Attention",
    "convolution": "Conv aioinfer.accelerator::Conv",
    "elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
        "BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater "
        "GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean "
        "Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin "
        "Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor "
        "aioinfer.accelerator::FusedElementwise"
    ),
    "gathering": "Gather GatherElements GatherND",
    "matmul": "Gemm MatMul aioinfer.accelerator::Gemm aioinfer.accelerator::MatMul",
    "movement": "Concat DepthToSpace Expand Slice SpaceToDepth Split Tile Transpose",
    "normalization": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization "
        "RMSNormalization"
    ),
    "pad": "Pad",
    "pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool",
    "reductions": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "resize": "Resize",
    "scans": "CumSum Trilu",
    "shapes": "ConstantOfShape Range Shape Size",
    "softmax": "LogSoftmax Softmax",
    "transposed_convolution": "ConvTranspose aioinfer.accelerator::ConvTranspose",
    "views": "Flatten Identity Reshape Squeeze Unsqueeze",
}
"""The operators that each module of this package registers kernels for."""

KERNELS: KernelRegistry[PlanBuilder] = KernelRegistry("accelerators", __package__, FAMILIES, FLOATS)

kernel = KERNELS.kernel
