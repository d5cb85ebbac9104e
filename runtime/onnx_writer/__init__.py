"""Writing models as onnx protos, whole or node by node.

Importing this package imports onnx: do it inside the function that needs it.
"""

from .model import node_to_proto, write_model
from .versions import lower_opsets, oldest_opsets

__all__ = ["lower_opsets", "node_to_proto", "oldest_opsets", "write_model"]
