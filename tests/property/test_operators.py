"""Every operator that a device has a kernel for gives what REFERENCE gives, whatever is drawn.

One suite for all devices with kernels of their own: a device is a line of ``DEVICES``. A kernel
that is added later needs a generator of cases, in ``property/operators``.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, defs, helper, numpy_helper

from aioinfer import Core
from aioinfer.runtime.graph import DType
from exhaustive import all_but
from opencl_device import choose_device
from presence import skip_if_missing
from property.operators import elementwise, matmuls, movement, rows, sizes  # noqa: F401
from property.operators.cases import DTYPES, FUSED, GENERATORS, Case, Generator
from unit.backends.comparing import assert_close, is_float, run

DEVICES = {
    "CPU": "aioinfer.backends.cpu.kernels.registry",
    "OPENCL": "aioinfer.backends.accelerator.kernels.registry",
    "CUDA": "aioinfer.backends.cuda.kernels.registry",
}
"""By device, the module that knows its kernels."""
ELSEWHERE = {
    "CPU": {
        *("Attention", "CastLike", "DequantizeLinear", "DynamicQuantizeLinear", "Einsum"),
        *("AffineGrid", "BitCast", "BlackmanWindow", "CenterCropPad", "Col2Im", "CumProd", "Det"),
        *("GridSample", "HammingWindow", "HannWindow", "Hardmax", "LpNormalization", "MaxRoiPool"),
        *("MaxUnpool", "MelWeightMatrix", "STFT", "TfIdfVectorizer"),
        *("EyeLike", "GRU", "MatMulInteger"),
        *("LSTM", "OneHot", "QuantizeLinear", "RNN", "ReverseSequence", "RoiAlign"),
        "RotaryEmbedding",
        *("ScatterElements", "aioinfer.cpu.ByNumpy"),
        *("ScatterND", "TensorScatter", "TopK", "aioinfer.cpu.Attention", "aioinfer.cpu.Eltwise"),
        *("aioinfer.cpu.Int8Conv", "aioinfer.cpu.Int8MatMul", "aioinfer.cpu.Int8Table"),
        *("aioinfer.cpu.LayerNormalization", "aioinfer.cpu.RMSNormalization"),
        *("aioinfer.cpu.PairDistances", "aioinfer.cpu.PixelShuffle"),
        *("ai.onnx.ml.ArrayFeatureExtractor", "ai.onnx.ml.Binarizer"),
        *("ai.onnx.ml.FeatureVectorizer", "ai.onnx.ml.Imputer", "ai.onnx.ml.LabelEncoder"),
        *("ai.onnx.ml.LinearClassifier", "ai.onnx.ml.LinearRegressor", "ai.onnx.ml.Normalizer"),
        *("ai.onnx.ml.OneHotEncoder", "ai.onnx.ml.SVMClassifier", "ai.onnx.ml.SVMRegressor"),
        "ai.onnx.ml.Scaler",
        *("ai.onnx.ml.TreeEnsemble", "ai.onnx.ml.TreeEnsembleClassifier"),
        *("ai.onnx.ml.TreeEnsembleRegressor", "aioinfer.user.Kernel"),
    },
    "CUDA": {
        *("aioinfer.cuda.AveragePool", "aioinfer.cuda.Conv"),
        *("aioinfer.cuda.ConvTranspose", "aioinfer.cuda.GlobalAveragePool"),
        *("aioinfer.cuda.GlobalMaxPool", "aioinfer.cuda.MaxPool", "aioinfer.cuda.ToChannelsLast"),
        "aioinfer.user.Kernel",
    },
}
"""What has no generator, since the device's own tests compare it with REFERENCE or onnxruntime."""

CASES, OPSET = 4, 24
"""Cases of one model, which share a compilation; and the operator set of all."""
BOUNDS = {
    DType.FLOAT32.numpy: 1e-5,
    DType.FLOAT16.numpy: 8e-3,
    DType.BFLOAT16.numpy: 6e-2,
}
"""By the least exact type that a case reads or writes; see ``bound_of``."""
EXAMPLES = settings(
    max_examples=2,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # a smaller case costs seconds of compiling, and cases are small
    suppress_health_check=list(HealthCheck),
)


def kernels_of(device: str) -> dict[tuple[str, str], Any]:
    """Give the kernels of a device by domain and operator."""
    return dict(importlib.import_module(DEVICES[device]).KERNELS.kernels)


def element_types(domain: str, op_type: str, dtypes: Collection[DType] | None) -> set[Any]:
    """Give what ONNX and the kernel take as first input; ``dtypes`` are the kernel's."""
    taken = set(DTYPES) if dtypes is None else {dtype.numpy for dtype in dtypes}
    if domain:
        return taken
    allowed = defs.get_schema(op_type, OPSET).inputs[0].types
    return {dtype for dtype in taken.intersection(DTYPES) if _onnx_name(dtype) in allowed}


def _onnx_name(dtype: np.dtype[Any]) -> str:
    return f"tensor({TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype)).lower()})"


OPERATORS = [
    (device, domain, op_type)
    for device in DEVICES
    for domain, op_type in sorted(kernels_of(device))
    if ".".join(filter(None, (domain, op_type))) not in ELSEWHERE.get(device, ())
]


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as made:
        choose_device(made)
        yield made


def model_of(cases: Sequence[Case], is_dynamic: bool) -> Any:
    """Join cases to one model; with ``is_dynamic`` all lengths come with the run."""
    inputs = []
    for name, array in [item for case in cases for item in case.inputs.items()]:
        shape = [f"{name}_{axis}" for axis in range(array.ndim)] if is_dynamic else array.shape
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, shape))
    graph = helper.make_graph(
        [node for case in cases for node in case.nodes],
        "drawn",
        inputs,
        [helper.make_empty_tensor_value_info(name) for case in cases for name in case.outputs],
        [
            numpy_helper.from_array(array, name)
            for case in cases
            for name, array in case.constants.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


@pytest.mark.parametrize(
    ("device", "domain", "op_type"),
    all_but([operator for operator in OPERATORS if operator[0] == "CPU"], OPERATORS),
    ids=["-".join(filter(None, operator)) for operator in OPERATORS],
)
def test_an_operator_gives_what_reference_gives(
    device: str,
    domain: str,
    op_type: str,
    core: Core,
    quick_core: Core,
) -> None:
    generators = FUSED if domain else GENERATORS
    assert op_type in generators, f"no generator of {op_type}: add one to property/operators"
    skip_if_missing(core, device)
    taken = element_types(domain, op_type, kernels_of(device)[domain, op_type].dtypes)

    cores = itertools.cycle((core, quick_core))  # the simplest example is built as users build

    @EXAMPLES
    @given(cases=several_cases(op_type, generators[op_type], taken), is_dynamic=st.booleans())
    def check(cases: list[Case], is_dynamic: bool) -> None:
        compare(next(cores), device, cases, is_dynamic)

    check()


@st.composite
def several_cases(
    draw: st.DrawFn, op_type: str, draw_case: Generator, taken: Collection[np.dtype[Any]]
) -> list[Case]:
    cases = [Case(draw, f"c{number}", taken) for number in range(CASES)]
    for case in cases:
        draw_case(case, op_type)
    return cases


def compare(core: Core, device: str, cases: list[Case], is_dynamic: bool) -> None:
    """Run what the device takes of the cases on it and on REFERENCE."""
    answers = core.query_network(model_of(cases, is_dynamic), device)
    refused = {name for name, answer in answers.items() if not answer.supported}
    cases = [case for case in cases if not refused & {node.name for node in case.nodes}]
    assume(cases)
    model = model_of(cases, is_dynamic)
    feeds = {name: array for case in cases for name, array in case.inputs.items()}
    wanted, found = (run(core, model, name, feeds) for name in ("REFERENCE", device))
    for case in cases:
        for name in case.outputs:
            assert_close(name, found[name], wanted[name], bound_of(case, wanted[name]))


def bound_of(case: Case, result: Any) -> float:
    """Bound the error by the largest value of a result, or by 1 where all are smaller."""
    arrays = (*case.inputs.values(), *case.constants.values(), result)
    bound = max(BOUNDS.get(array.dtype, 0.0) for array in arrays)
    finite = np.abs(result[np.isfinite(result)]) if is_float(result.dtype) else np.ones(1)
    return bound * max(1.0, 1.0 / max(float(finite.max(initial=0)), 1e-30))
