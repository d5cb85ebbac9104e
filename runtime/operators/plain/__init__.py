"""Plain operators, which onnx.reference has as well: what constant folding needs, without onnx."""
