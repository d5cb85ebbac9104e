"""Operators that onnx.reference lacks or gets wrong, and that stand in for its own."""
