"""The table of plain operators: those that functions here compute, without onnx.

Loading onnx takes longer than folding the constants of an ordinary model, and most of what is
folded is a handful of simple operators. A function stands at its definition::

    @plain("Concat", since=4)
    def concat(*arrays: Array, axis: int) -> Array: ...

A node's inputs come as positional arguments, its attributes as keywords: the keywords of a function
are the attributes that it knows, those without a default are required. :func:`find_plain` finds a
function only for a node that is surely right: of an opset in which the operator means what the
function computes, with all required attributes and none that is not known. Everything else is left
to onnx, which either evaluates it or says what is wrong with it.

What a function gives is what onnx.reference gives, to the bit, unless that contradicts ONNX's
specification; it may be a view of an input.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..graph import Node
from ..graph.operator_families import OperatorFamilies

__all__ = ["Array", "PlainFunction", "Prepared", "find_plain", "plain"]

FAMILIES = {
    "images.box_suppression": "NonMaxSuppression",
    "images.region_alignment": "RoiAlign",
    "images.resize": "Resize",
    "images.unfolded_windows": "Col2Im MaxUnpool",
    "indices.index_operators": "OneHot ReverseSequence",
    "indices.scattering": "GatherND ScatterElements ScatterND TensorScatter",
    "indices.unique_elements": "Unique",
    "ml.linear_models": "ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor",
    "ml.ml_features": (
        "ai.onnx.ml::ArrayFeatureExtractor ai.onnx.ml::CategoryMapper "
        "ai.onnx.ml::FeatureVectorizer ai.onnx.ml::Imputer ai.onnx.ml::LabelEncoder "
        "ai.onnx.ml::Normalizer ai.onnx.ml::OneHotEncoder ai.onnx.ml::Scaler"
    ),
    "ml.support_vectors": "ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor",
    "ml.tree_ensembles": (
        "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier "
        "ai.onnx.ml::TreeEnsembleRegressor"
    ),
    "own.own_einsum": "Einsum",
    "own.own_elementwise": "Erf Gelu LogSoftmax PRelu Pow Softplus Softsign Sqrt",
    "own.own_grams": "TfIdfVectorizer",
    "own.own_losses": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "own.own_maps": "ai.onnx.ml::CastMap ai.onnx.ml::DictVectorizer ai.onnx.ml::ZipMap",
    "own.own_operators": (
        "Constant Expand Gather GatherElements GlobalLpPool GroupNormalization MaxRoiPool "
        "Multinomial Optional OptionalGetElement TopK"
    ),
    "own.own_quantization": (
        "DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul QuantizeLinear"
    ),
    "own.own_reductions": (
        "Hardmax LpNormalization MeanVarianceNormalization ReduceLogSum ReduceLogSumExp"
    ),
    "own.own_sampling": "AffineGrid GridSample",
    "own.own_sequences": "SequenceAt SequenceErase SequenceInsert SplitToSequence",
    "own.own_spectra": "STFT",
    "own.own_texts": "StringNormalizer",
    "own.own_windows": "BlackmanWindow HammingWindow HannWindow",
    "plain.plain_elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast Ceil Clip Cos Cosh "
        "Div Equal Exp Floor "
        "Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Log Max Mean Min Mul Neg Not "
        "Or Reciprocal Sign Sin Sinh Sub Tan Tanh Where"
    ),
    "plain.plain_movement": (
        "Compress Concat ConstantOfShape Flatten NonZero Pad Range Reshape Shape Size Slice Split "
        "Squeeze Tile Transpose Trilu Unsqueeze"
    ),
    "plain.plain_normalization": "LayerNormalization RMSNormalization",
    "plain.plain_reductions": "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum",
    "plain.plain_scans": "CumProd CumSum",
    "recurrent.recurrent": "GRU LSTM RNN",
    "windows.convolutions": "Conv ConvInteger ConvTranspose QLinearConv",
    "windows.pools": "AveragePool GlobalAveragePool GlobalMaxPool LRN LpPool MaxPool",
}
"""The operators that each module of this package registers functions for."""

Array = np.ndarray[Any, Any]

PlainFunction = Callable[..., Any]
"""``function(*inputs, **attributes)`` gives one array, list or None, or a tuple of them."""


class Prepared(NamedTuple):
    """What gives the function of a node's inputs, called once with its attributes as keywords.

    For operators whose attributes are large: what is made of them is made once a node.
    """

    prepare: Callable[..., PlainFunction]


class _Entry(NamedTuple):
    function: PlainFunction | Prepared
    since: int
    later: Mapping[str, int]
    further: frozenset[str]
    accepts: Callable[[Node], bool]
    takes_output_count: bool


_families = OperatorFamilies(__package__, FAMILIES)
_entries: dict[tuple[str, str], _Entry] = {}


def plain(
    op_type: str,
    *,
    since: int,
    domain: str = "",
    later: Mapping[str, int] | None = None,
    further: Collection[str] = (),
    accepts: Callable[[Node], bool] = lambda node: True,
    takes_output_count: bool = False,
    prepares: bool = False,
) -> Callable[[PlainFunction], PlainFunction]:
    """Register a function for an operator.

    ``since`` is the opset from which on it is right; ``later`` names the attributes that a later
    opset brought, ``further`` those that its ``**`` keywords take. A node that ``accepts`` declines
    is left to onnx. ``takes_output_count`` asks for the number of the node's outputs as the keyword
    ``output_count``. One that ``prepares`` takes attributes alone, and gives the function of the
    inputs; see ``Prepared``.
    """

    def register(function: PlainFunction) -> PlainFunction:
        if (domain, op_type) in _entries:
            raise ValueError(f"{op_type} has two plain functions")
        _entries[domain, op_type] = _Entry(
            Prepared(function) if prepares else function,
            since,
            later or {},
            frozenset(further),
            accepts,
            takes_output_count,
        )
        return function

    return register


def find_plain(node: Node, opsets: Mapping[str, int]) -> PlainFunction | Prepared | None:
    """Find the function that computes a node, given its attributes as keywords; None: ask onnx.

    A domain that ``opsets`` lacks is taken to be of its newest version.
    """
    _families.load(node.domain, node.op_type)
    entry = _entries.get((node.domain, node.op_type))
    if entry is None:
        return None
    version = opsets.get(node.domain)
    given = node.attributes.keys()
    required, known = _attribute_names(entry.function)
    if not required <= given <= known | entry.further or not entry.accepts(node):
        return None
    if version is not None and version < max(
        (entry.later.get(name, entry.since) for name in given), default=entry.since
    ):
        return None
    if entry.takes_output_count and not isinstance(entry.function, Prepared):
        return functools.partial(entry.function, output_count=len(node.outputs))
    return entry.function


@functools.cache
def _attribute_names(
    function: PlainFunction | Prepared,
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the attributes that a function requires, and of all that it knows."""
    asked = function.prepare if isinstance(function, Prepared) else function
    keywords = {
        parameter.name: parameter.default
        for parameter in inspect.signature(asked).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name != "output_count"
    }
    required = [name for name, default in keywords.items() if default is inspect.Parameter.empty]
    return frozenset(required), frozenset(keywords)
