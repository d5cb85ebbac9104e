"""One ONNX operator on numpy arrays: what constant folding and the REFERENCE device share."""

from .operator import Operator, OperatorError, as_operator, find_unsupported, make_operator

__all__ = ["Operator", "OperatorError", "as_operator", "find_unsupported", "make_operator"]
