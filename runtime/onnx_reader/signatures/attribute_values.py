"""Attributes that take one of a few values, or a least one; schemas say which in prose only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["FLAGS", "LEAST", "VALUES", "find_wrong_value"]

_Choices = Mapping[str, tuple[str | int, ...]]

_PADDING: _Choices = {"auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")}
_DIRECTIONS: _Choices = {"direction": ("forward", "reverse", "bidirectional"), "layout": (0, 1)}
_SCATTERING: _Choices = {"reduction": ("none", "add", "mul", "max", "min")}
_LOSS: _Choices = {"reduction": ("none", "sum", "mean")}
_SCORES = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_TREES = {
    "nodes_modes": (
        *("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF"),
    ),
    "post_transform": _SCORES,
}
_PADDED = (
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "LpPool",
    "MaxPool",
    "QLinearConv",
)

VALUES: Mapping[str, _Choices] = {
    **dict.fromkeys(_PADDED, _PADDING),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _DIRECTIONS),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _SCATTERING),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _LOSS),
    "Attention": {"qk_matmul_output_mode": (0, 1, 2, 3)},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "Cast": {"round_mode": ("up", "down", "nearest")},
    "CastLike": {"round_mode": ("up", "down", "nearest")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("linear", "bilinear", "nearest", "cubic", "bicubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "ImageDecoder": {"pixel_format": ("RGB", "BGR", "Grayscale")},
    "LpNormalization": {"p": (1, 2)},
    "Mod": {"fmod": (0, 1)},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "coordinate_transformation_mode": (
            *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners"),
            *("asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"),
        ),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
        "mode": ("nearest", "linear", "cubic"),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    },
    "RoiAlign": {
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
        "mode": ("avg", "max"),
    },
    "StringNormalizer": {"case_change_action": ("LOWER", "UPPER", "NONE")},
    "TensorScatter": {"mode": ("linear", "circular")},
    "TfIdfVectorizer": {"mode": ("TF", "IDF", "TFIDF")},
    "Upsample": {"mode": ("nearest", "linear", "bilinear")},
    # Of the domain ai.onnx.ml, which has no operator of the same name as the other.
    "CastMap": {"cast_to": ("TO_FLOAT", "TO_STRING", "TO_INT64"), "map_form": ("DENSE", "SPARSE")},
    "LinearClassifier": {"post_transform": _SCORES},
    "LinearRegressor": {"post_transform": _SCORES},
    "Normalizer": {"norm": ("MAX", "L1", "L2")},
    "SVMClassifier": {
        "kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID"),
        "post_transform": _SCORES,
    },
    "SVMRegressor": {
        "kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID"),
        "post_transform": _SCORES,
    },
    "TreeEnsembleClassifier": _TREES,
    "TreeEnsembleRegressor": {**_TREES, "aggregate_function": ("AVERAGE", "SUM", "MIN", "MAX")},
}
"""By operator and attribute; of all opsets: what an opset lacks is for its kernels to refuse."""

FLAGS = frozenset(
    {
        *("align_corners", "allowzero", "antialias", "ceil_mode", "center_point_box"),
        *("count_include_pad", "detect_negative", "detect_positive", "exclude_outside"),
        *("exclusive", "input_forget", "interleaved", "inverse", "is_case_sensitive", "is_causal"),
        *(
            "keepdims",
            "largest",
            "linear_before_reset",
            "new_axis",
            "nodes_missing_value_tracks_true",
        ),
        *("noop_with_empty_axes", "onesided", "periodic", "reverse", "saturate"),
        *("scan_input_directions", "scan_output_directions", "select_last_index", "sorted"),
        *("storage_order", "training_mode", "transA", "transB", "upper", "zeros"),
    }
)
"""Attributes that are 0 or 1 in each operator that has them.

Of another number one implementation takes the truth, one asks whether it is 1, and one cuts it.
"""
_FLAG = (0, 1)

LEAST: Mapping[str, Mapping[str, int]] = {
    "GlobalLpPool": {"p": 1},
    "LpPool": {"p": 1},
    "Scan": {"num_scan_inputs": 1},
}
"""By operator and attribute of one integer: which is the smallest."""


def find_wrong_value(op_type: str, attributes: Iterable[tuple[str, Any]]) -> str | None:
    """Return which attribute has a value that its operator lacks, after the node's name, or None.

    For operators of the domains of ONNX. Texts may be bytes. Pure, O(attributes).
    """
    choices, least = VALUES.get(op_type, {}), LEAST.get(op_type, {})
    for name, content in attributes:
        if name in least and isinstance(content, int) and content < least[name]:
            return f"has {content} as its attribute {name!r}, which is at least {least[name]}"
        known = _FLAG if name in FLAGS else choices.get(name)
        if known is None:
            continue
        for item in dict.fromkeys(content) if isinstance(content, list) else [content]:
            value = item.decode(errors="replace") if isinstance(item, bytes) else item
            if value not in known:
                return f"has {value!r} as its attribute {name!r}, which is one of {list(known)}"
    return None
