"""onnx's own code, called in a helper process: type inference, conversion, inlining.

Importing this package imports onnx: do it inside the function that needs it.
"""

from .inference import infer_types

__all__ = ["infer_types"]
