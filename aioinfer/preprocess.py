"""What `openvino.preprocess` has, under the same names: code that imports from there ports to here.

``Layout`` and ``Type`` stand beside it in ``openvino`` itself. Wherever one of these is taken, so
is its name as a text: ``"NHWC"``, ``"u8"``, ``"BGR"``, ``"linear"``.
"""

from .runtime.preprocessing.color_format import ColorFormat
from .runtime.preprocessing.custom import CustomStep
from .runtime.preprocessing.element_types import ElementType, Type
from .runtime.preprocessing.layout import Layout
from .runtime.preprocessing.layout_steps import PaddingMode
from .runtime.preprocessing.port_name import PortName
from .runtime.preprocessing.pre_post_processor import InputInfo, OutputInfo, PrePostProcessor
from .runtime.preprocessing.resizing import ResizeAlgorithm
from .runtime.preprocessing.steps import PostProcessSteps, PreProcessSteps
from .runtime.preprocessing.tensor_info import (
    InputModelInfo,
    InputTensorInfo,
    OutputModelInfo,
    OutputTensorInfo,
)

__all__ = [
    "ColorFormat",
    "CustomStep",
    "ElementType",
    "InputInfo",
    "InputModelInfo",
    "InputTensorInfo",
    "Layout",
    "OutputInfo",
    "OutputModelInfo",
    "OutputTensorInfo",
    "PaddingMode",
    "PortName",
    "PostProcessSteps",
    "PrePostProcessor",
    "PreProcessSteps",
    "ResizeAlgorithm",
    "Type",
]
