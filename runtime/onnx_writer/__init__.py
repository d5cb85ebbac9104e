"""Writing models as onnx protos, whole or node by node, and onnx's shape inference on them.

Importing this package imports onnx: do it inside the function that needs it.
"""

from .inference import infer_types
from .model import node_to_proto, write_model
from .versions import oldest_opsets

__all__ = ["infer_types", "node_to_proto", "oldest_opsets", "write_model"]
