"""aioinfer: asyncio inference for ONNX models, on one device or split over several.

core = aioinfer.Core()
network = core.load_network("model.onnx", "HETERO:REFERENCE.0,REFERENCE.1")
outputs = await network.infer({"image": image})
"""

import importlib
import logging
from types import ModuleType

from . import errors
from .runtime.devices.core import Core
from .runtime.devices.extension import Extension
from .runtime.devices.plugin import Plugin
from .runtime.graph import Model
from .runtime.network.executable_network import ExecutableNetwork
from .runtime.network.infer_request import InferRequest
from .runtime.tensors.tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "Core",
    "ExecutableNetwork",
    "Extension",
    "InferRequest",
    "Model",
    "Plugin",
    "Tensor",
    "__version__",
    "errors",
    "testing",
]

logging.getLogger("aioinfer").addHandler(logging.NullHandler())


def __getattr__(name: str) -> ModuleType:
    """Load the test kit on first use; programs that do not test never pay for it."""
    if name == "testing":
        return importlib.import_module(".testing", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
